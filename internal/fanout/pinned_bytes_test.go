package fanout

import (
	"testing"

	"xdsrelay/config"
	"xdsrelay/internal/fanout/subscriber/subscribertest"
)

// A client that is ended releases all that it keeps. No more clients are ended than necessary.
func TestP16_NoMoreClientsEndThanNecessary(t *testing.T) {
	s := NewServer(Options{Joiner: &subscribertest.Joiner{}, Metrics: newMetrics(t), Settings: Settings{Limits: config.Limits{PinnedBytes: 150 << 20}}})
	pins, all := make(map[any]pin), []*stream{}
	for who := range 3 {
		p := &stream{srv: s, fin: silent{}}
		all = append(all, p)
		for what := range 60 {
			pins[who*60+what] = pin{p, 1 << 20}
		}
	}
	ended := func() (n int) {
		for _, p := range all {
			if p.refusal.Load() != nil {
				n++
			}
		}
		return n
	}
	if s.unpin(pins); ended() != 1 {
		t.Errorf("%d of 3 are ended, where one would do", ended())
	}
	// The one that keeps most, not that which keeps the largest.
	most := &stream{srv: s, fin: silent{}}
	pins = map[any]pin{"large": {&stream{srv: s, fin: silent{}}, 100 << 20}, 1: {most, 60 << 20}, 2: {most, 60 << 20}}
	if s.unpin(pins); most.refusal.Load() == nil {
		t.Error("who keeps most is not ended")
	}
}
