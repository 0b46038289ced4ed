package fanout

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// ending notes when a stream was told to end.
type ending struct {
	mu   sync.Mutex
	at   []time.Time
	code codes.Code
}

func (e *ending) WriteStatus(s *status.Status) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.at, e.code = append(e.at, time.Now()), s.Code()
	return nil
}

// Streams that were opened at one moment end one by one, each at its own time,
// however short the age is; those that end before are not held until then.
func TestEachStreamEndsAtItsOwnTime(t *testing.T) {
	for _, age := range []time.Duration{time.Second, 30 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			s, _ := bubble(t, func(o *Options) { o.MaxConnectionAge = age })
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- s.Run(ctx) }()
			synctest.Wait() // the first alarm is set while it waits for none
			const n = 1000
			var streams []*stream
			began := time.Now()
			for range n {
				st := &stream{srv: s, opened: began, fin: new(ending), conn: &conn{in: new(listener)}}
				if !s.add(st) {
					t.Fatal("not taken")
				}
				streams = append(streams, st)
			}
			gone := streams[n/2:]
			for _, st := range gone {
				s.remove(st)
			}
			s.ages.mu.Lock()
			left := len(s.ages.due)
			s.ages.mu.Unlock()
			if left != n-len(gone) {
				t.Errorf("%v: %d streams are waited for, of %d", age, left, n-len(gone))
			}
			time.Sleep(2 * age)
			synctest.Wait()
			moments, tenths := map[time.Duration]int{}, map[time.Duration]int{}
			for i, st := range streams {
				e := st.fin.(*ending)
				if i >= n/2 {
					if len(e.at) != 0 {
						t.Errorf("%v: stream %d was ended after it had left", age, i)
					}
					continue
				}
				if len(e.at) != 1 || e.code != codes.Unavailable {
					t.Fatalf("%v: stream %d ended at %v with %v", age, i, e.at, e.code)
				}
				after := e.at[0].Sub(began)
				if want := jitter(age, st.id); after != want {
					t.Errorf("%v: stream %d ended after %v, want %v", age, i, after, want)
				}
				moments[after]++
				tenths[(after-age+age/10)*10/(age/5)]++
			}
			if len(moments) < n/2-2 {
				t.Errorf("%v: %d streams ended at %d moments", age, n/2, len(moments))
			}
			for i := range time.Duration(10) {
				if tenths[i] < n/40 || tenths[i] > n/10 {
					t.Errorf("%v: in tenth %d of the time %d of %d ended", age, i, tenths[i], n/2)
				}
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// A client is told that its stream was too old, and that it may come back.
func TestOldStreamEnds(t *testing.T) {
	r := newRig(t, func(o *Options) { o.MaxConnectionAge = 20 * time.Millisecond })
	r.house.group("edge").publish(update(t, xds.ClusterType, "a"))
	c := r.delta(nil)
	c.ask(xds.ClusterType, "*")
	r.wantEnd(c, codes.Unavailable, telemetry.Aged)
	r.eventually(func() bool {
		r.srv.ages.mu.Lock()
		defer r.srv.ages.mu.Unlock()
		return len(r.srv.ages.due) == 0
	})
}
