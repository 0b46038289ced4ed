package fanout

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// Who watches the relay's health is counted as a stream, few on a connection; asking
// once is free, and so is coming again when others have gone.
func TestHealthWatchesAreBounded(t *testing.T) {
	watcher := func(r *rig) func(c *grpc.ClientConn) (stop func(), err error) {
		return func(c *grpc.ClientConn) (func(), error) {
			ctx, cancel := context.WithCancel(testContext(t))
			s, err := grpc_health_v1.NewHealthClient(c).Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.Recv()
			return cancel, err
		}
	}
	rigOf := func(t *testing.T, streams int) *rig {
		return newRig(t, func(o *Options) { o.Limits.Streams = streams })
	}
	open := func(r *rig) int {
		r.srv.watches.mu.Lock()
		defer r.srv.watches.mu.Unlock()
		return r.srv.watches.total
	}
	t.Run("of a connection", func(t *testing.T) {
		r := rigOf(t, 0)
		watch, c := watcher(r), r.dial()
		var stop func()
		for range watchesPerConnection {
			var err error
			if stop, err = watch(c); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := watch(c); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("one too many: %v", err)
		}
		r.counted(telemetry.HealthWatches, 1)
		if _, err := grpc_health_v1.NewHealthClient(c).Check(testContext(t), &grpc_health_v1.HealthCheckRequest{}); err != nil {
			t.Errorf("asking once: %v", err)
		}
		if _, err := watch(r.dial()); err != nil {
			t.Errorf("of another connection: %v", err)
		}
		stop()
		r.eventually(func() bool { return open(r) == watchesPerConnection })
		if _, err := watch(c); err != nil {
			t.Errorf("after one has gone: %v", err)
		}
	})
	t.Run("as streams", func(t *testing.T) {
		r := rigOf(t, 2)
		watch := watcher(r)
		r.house.group("edge").publish(update(t, xds.ClusterType, "a"))
		c := r.delta(nil)
		c.ask(xds.ClusterType)
		c.want("a ")
		stop, err := watch(r.dial())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := watch(r.dial()); status.Code(err) != codes.Unavailable {
			t.Errorf("more than there may be streams: %v", err)
		}
		r.counted(telemetry.LimitStreams, 1)
		stop()
		r.eventually(func() bool { return open(r) == 0 })
		if _, err := watch(r.dial()); err != nil {
			t.Errorf("after one has gone: %v", err)
		}
	})
}

// Without a limit of streams there is one of watches.
func TestHealthWatchesAreBoundedInAll(t *testing.T) {
	w := watches{conns: make(map[*conn]int)}
	conns := make([]conn, maxWatches)
	for i := range conns {
		if r := w.enter(&conns[i]); r != nil {
			t.Fatal(r)
		}
	}
	if r := w.enter(new(conn)); r == nil || r.Reason != telemetry.HealthWatches || r.Code != codes.ResourceExhausted {
		t.Errorf("one too many: %v", r)
	}
	for i := range conns {
		w.leave(&conns[i])
	}
	if w.total != 0 || len(w.conns) != 0 {
		t.Errorf("%d and %d are left", w.total, len(w.conns))
	}
}
