package timing

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// The first change goes upstream within 20 ms. While changes keep coming, the pause doubles up to
// 200 ms. After a second without one it starts again (P52).
func TestP52_PauseBetweenRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p RequestPause
		var got []time.Duration
		request := func() {
			wait := p.Next(time.Now())
			time.Sleep(wait)
			got = append(got, wait)
		}
		for range 7 { // changes keep coming
			request()
		}
		time.Sleep(500 * time.Millisecond)
		request() // the pause is over, but it is still a long one
		request()
		time.Sleep(pauseOver)
		request()
		request()
		const ms = time.Millisecond
		want := []time.Duration{5 * ms, 20 * ms, 40 * ms, 80 * ms, 160 * ms, 200 * ms, 200 * ms, 5 * ms, 200 * ms, 5 * ms, 20 * ms}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("waits %v, want %v", got, want)
		}
	})
}
