package integration

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xdstest"
)

// SIGTERM: no new streams are accepted. The open ones end one by one over the drain time, with a
// status after which clients retry. The exit code is 0.
func TestSigtermDrains(t *testing.T) {
	t.Parallel()
	o := origin(t, xdstest.Linear)
	o.Put("edge", xdstest.Web(1)...)
	r := serve(t, o.Address, xdstest.Config{"downstream.drain": "500ms"})
	const n = 20
	ends := make(chan time.Time, n)
	for i := range n {
		c := client(t, r.Address, fleet.ClientConfig{Node: node(fmt.Sprint("n-", i), "edge"), Variant: variants[i%2],
			Behaviour: fleet.Raw, Subscribe: []fleet.Subscription{{Type: resource.ClusterType}}, NoReconnect: true,
			OnStream: func(c *fleet.Client, err error) {
				if err == nil {
					return
				}
				if s := status.Code(errors.Unwrap(err)); s != codes.Unavailable && !errors.Is(err, io.EOF) {
					t.Errorf("%s: ended with %v", c.ID(), err)
				}
				ends <- time.Now()
			}})
		waitFor(t, c, "what the origin has", has(xdstest.Cluster("web", 1)))
	}
	r.Signal(syscall.SIGTERM)
	r.notReady()
	r.Stop() // asserts the exit code
	var first, last time.Time
	for range n {
		select {
		case at := <-ends:
			if first.IsZero() {
				first = at
			}
			last = at
		case <-time.After(xdstest.Patience):
			t.Fatal("a stream did not end")
		}
	}
	if log := r.Log(); !strings.Contains(log, fmt.Sprintf("msg=drained streams=%d took=", n)) || strings.Contains(log, "client stream ended") {
		t.Errorf("the log does not say in one line that the drain is over")
	}
	if d := last.Sub(first); d < 200*time.Millisecond {
		t.Errorf("the streams ended within %v, and should over 500ms", d)
	}
	xdstest.Eventually(t, "the origin's streams", xdstest.Holds(func() bool { open, _ := o.Streams(); return open == 0 }))
}

// notReady waits until the relay reports that it drains.
func (r *relay) notReady() {
	r.t.Helper()
	xdstest.Eventually(r.t, "/ready to say no", func() error {
		if _, err := r.Get("/ready"); err != nil {
			return nil
		}
		return xdstest.ErrNotYet
	})
}

// A connection without any request does not delay the end of the relay.
func TestSilentConnectionsKeepNothingFromEnding(t *testing.T) {
	t.Parallel()
	o := origin(t, xdstest.Linear)
	r := serve(t, o.Address, nil)
	for range 3 {
		c, err := net.Dial("tcp", r.Address)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }() // no request was sent on it
	}
	r.Signal(syscall.SIGTERM)
	select {
	case <-r.Exited():
	case <-time.After(15 * time.Second): // grpc would wait for 20
		t.Error("the relay waits for connections without requests")
	}
}
