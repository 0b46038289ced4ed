package integration

import (
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xds"
)

// P53: without its origin the relay goes on: streams stay up and newcomers get
// what is held. P55: what changed meanwhile comes when the origin is back.
func TestP53_OriginDies(t *testing.T) {
	eachOrigin(t, func(t *testing.T, upstream, kind string) {
		o := newOrigin(t, kind)
		o.put("edge", web(1)...)
		gone := cluster("gone", 1)
		o.put("edge", gone, endpoints("gone", 1))
		r := serve(t, o.addr, settings{"upstream.variant": upstream})
		early := envoys(t, r.addr, "edge")
		waitAll(t, early, "what the origin has", hasAll(append(web(1), gone, endpoints("gone", 1))...))

		o.stop()
		until(t, "the loss in /keys", func() error {
			for _, k := range r.keys() {
				if k.Upstream.Connected {
					return errNotYet
				}
			}
			return nil
		})
		var late []*fleet.Client
		for _, v := range variants {
			late = append(late, client(t, r.addr, fleet.ClientConfig{Node: node("late-"+v.String(), "edge"), Variant: v, Behaviour: fleet.Envoy}))
		}
		waitAll(t, late, "what is held", hasAll(append(web(1), gone)...))
		if _, err := r.get("/ready"); err != nil {
			t.Errorf("/ready without the origin: %v", err)
		}
		// Of another key nothing is held, and there is nobody to ask.
		for _, v := range variants {
			s := raw(t, r.addr, v)
			send(t, s, ask(v, node("n", "nothing-held"), xds.ClusterType))
			refused(t, s, answer(v), codes.Unavailable)
		}
		r.waitMetric(t, 2, "refused_total", "reason", "origin_unreachable")

		o.remove("edge", xds.ClusterType, "gone")
		o.put("edge", web(2)...)
		o.start()
		everyone := append(early, late...)
		waitAll(t, everyone, "what changed meanwhile", all(hasAll(web(2)...), hasNot(xds.ClusterType, "gone")))
		for _, c := range everyone {
			if n := c.Counters().Streams; n != 1 {
				t.Errorf("%s needed %d streams", c, n)
			}
		}
		r.waitMetric(t, 1, "upstream_reconnects_total")
	})
}

// P53: a key for which nothing came yet waits on an origin that is silent, and
// is refused for one that is not there; then clients can come again.
func TestP53_SilentOriginEndsNothing(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			r := serve(t, f.addr, settings{"upstream.variant": v.String(), "upstream.first_answer_timeout": "100ms"})
			c := client(t, r.addr, fleet.ClientConfig{Node: node("n", "edge"), Variant: v, Behaviour: fleet.Raw,
				Subscribe: []fleet.Subscription{{Type: xds.ClusterType}, {Type: xds.EndpointType, Names: []string{"late"}}}})
			f.waitRequest(t, "a request", func(q request) bool { return q.Type == xds.EndpointType })
			// Longer than first_answer_timeout: silence says nothing of any name (P57).
			r.waitMetric(t, 1, "upstream_silent_streams", "origin", f.addr)
			<-time.After(300 * time.Millisecond)
			if c.Absent(xds.EndpointType) != nil {
				t.Error("the client was told that the name does not exist")
			}
			f.send(t, response(v, xds.EndpointType, "1", entryOf(endpoints("late", 1))))
			waitFor(t, c, "what came late", has(endpoints("late", 1)))
			if n := c.Counters().Streams; n != 1 {
				t.Errorf("%s needed %d streams", c, n)
			}
		})
	}
}

// An origin that takes streams and says nothing is counted, shown and told of, once,
// and until it speaks.
func TestP53_SilentOriginIsShown(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			r := serve(t, f.addr, settings{"upstream.variant": v.String(), "upstream.first_answer_timeout": "100ms"})
			for _, cluster := range []string{"edge", "mesh"} {
				client(t, r.addr, fleet.ClientConfig{Node: node("n", cluster), Variant: v, Behaviour: fleet.Raw, Subscribe: []fleet.Subscription{{Type: xds.ClusterType}}})
			}
			r.waitMetric(t, 2, "upstream_silent_streams", "origin", f.addr)
			silent := func() (n int) {
				for _, k := range r.keys() {
					if k.Upstream.Silent != "" {
						n++
					}
				}
				return n
			}
			until(t, "/keys", holds(func() bool { return silent() == 2 }))
			if body, err := r.get("/origins"); err != nil || !strings.Contains(string(body), `"silent_since"`) || !strings.Contains(string(body), `"silent_streams": 2`) {
				t.Errorf("/origins: %s, %v", body, err)
			}
			f.send(t, response(v, xds.ClusterType, "1", entryOf(cluster("web", 1)))) // on the newest of them
			until(t, "one that speaks", holds(func() bool { return silent() == 1 && r.metric(t, "upstream_silent_streams") == 1 }))
			if n := strings.Count(r.log.String(), "origin is silent:"); n != 1 {
				t.Errorf("told %d times", n)
			}
		})
	}
}

// A relay that is started before its origin: clients are told to go elsewhere,
// and get what there is when it comes.
func TestP53_OriginComesLate(t *testing.T) {
	o := newOrigin(t, linear)
	o.stop()
	o.put("edge", web(1)...)
	r := serve(t, o.addr, nil)
	clients := envoys(t, r.addr, "edge")
	waitAll(t, clients, "a refusal", func(c *fleet.Client) bool { return status.Code(errors.Unwrap(c.LastError())) == codes.Unavailable })
	o.start()
	waitAll(t, clients, "what the origin has", hasAll(web(1)...))
}

// SIGTERM: no new streams, the open ones end over the time to drain, not all at
// once, with a status after which clients come again, and the exit code is 0.
func TestSigtermDrains(t *testing.T) {
	o := newOrigin(t, linear)
	o.put("edge", web(1)...)
	r := serve(t, o.addr, settings{"downstream.drain": "500ms"})
	const n = 20
	ends := make(chan time.Time, n)
	for i := range n {
		c := client(t, r.addr, fleet.ClientConfig{Node: node(fmt.Sprint("n-", i), "edge"), Variant: variants[i%2],
			Behaviour: fleet.Raw, Subscribe: []fleet.Subscription{{Type: xds.ClusterType}}, NoReconnect: true,
			OnStream: func(c *fleet.Client, err error) {
				if err == nil {
					return
				}
				if s := status.Code(errors.Unwrap(err)); s != codes.Unavailable && !errors.Is(err, io.EOF) {
					t.Errorf("%s: ended with %v", c.ID(), err)
				}
				ends <- time.Now()
			}})
		waitFor(t, c, "what the origin has", has(cluster("web", 1)))
	}
	r.drain()
	r.notReady()
	r.stop() // asserts the exit code
	var first, last time.Time
	for range n {
		select {
		case at := <-ends:
			if first.IsZero() {
				first = at
			}
			last = at
		case <-time.After(patience):
			t.Fatal("a stream did not end")
		}
	}
	if log := r.log.String(); !strings.Contains(log, fmt.Sprintf("msg=drained streams=%d took=", n)) || strings.Contains(log, "ended a stream") {
		t.Errorf("the log does not say in one line that the drain is over")
	}
	if d := last.Sub(first); d < 200*time.Millisecond {
		t.Errorf("the streams ended within %v, and should over 500ms", d)
	}
	until(t, "the origin's streams", holds(func() bool { open, _ := o.count(); return open == 0 }))
}

// notReady waits until the relay says that it drains.
func (r *relay) notReady() {
	r.t.Helper()
	until(r.t, "/ready to say no", func() error {
		if _, err := r.get("/ready"); err != nil {
			return nil
		}
		return errNotYet
	})
}

// Who connects and says nothing does not keep the relay from ending.
func TestSilentConnectionsKeepNothingFromEnding(t *testing.T) {
	o := newOrigin(t, linear)
	r := serve(t, o.addr, nil)
	for range 3 {
		c, err := net.Dial("tcp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }() // nothing was said on it
	}
	r.drain()
	select {
	case <-r.exited:
	case <-time.After(15 * time.Second): // grpc waits for 20
		t.Error("the relay waits for connections on which nobody says anything")
	}
}

// A second SIGTERM ends the drain, however long it would have taken.
func TestSecondSigtermEndsAtOnce(t *testing.T) {
	o := newOrigin(t, linear)
	o.put("edge", web(1)...)
	r := serve(t, o.addr, settings{"downstream.drain": "1h"})
	var clients []*fleet.Client
	for i := range 10 {
		c := client(t, r.addr, fleet.ClientConfig{Node: node(fmt.Sprint("n-", i), "edge"), Variant: variants[i%2],
			Behaviour: fleet.Raw, Subscribe: []fleet.Subscription{{Type: xds.ClusterType}}, NoReconnect: true})
		waitFor(t, c, "what the origin has", has(cluster("web", 1)))
		clients = append(clients, c)
	}
	r.drain()
	r.notReady()
	select {
	case <-r.exited:
		t.Fatal("one SIGTERM ended the relay without a drain")
	default:
	}
	r.signal(syscall.SIGTERM)
	r.stop()
	if log := r.log.String(); !strings.Contains(log, "ending at once") || !regexp.MustCompile(`msg=drained streams=10 took=\S+ at_once=\d+\n`).MatchString(log) {
		t.Errorf("the log does not say that it ends at once, and how many streams: %s", log)
	}
	waitAll(t, clients, "the end of its stream", func(c *fleet.Client) bool { return c.LastError() != nil })
}
