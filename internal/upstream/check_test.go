package upstream

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"xdsrelay/internal/xds"
)

// cables are the connections of a relay, each of which can be cut so that neither side is told.
type cables struct {
	n    *inMemory
	laid []*cable
}

type cable struct {
	net.Conn
	to  string
	cut atomic.Bool
}

func (c *cables) dial(ctx context.Context, name string) (net.Conn, error) {
	made, err := c.n.dial(ctx, name)
	if err != nil {
		return nil, err
	}
	l := &cable{Conn: made, to: name}
	c.n.mu.Lock()
	c.laid = append(c.laid, l)
	c.n.mu.Unlock()
	return l, nil
}

// all are those that were laid.
func (c *cables) all() []*cable {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	return slices.Clone(c.laid)
}

func (c *cable) Write(b []byte) (int, error) {
	if c.cut.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// Just the connection of a stream is dead: what other connections to the same origin bring, and
// answers to checks on them, say nothing of what is asked on it.
func TestP57_ADeadConnectionAmongOthersIsNoWitness(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		f := n.origin("one")
		c := &cables{n: n}
		r := startRelay(t, Options{Variant: v, Dialer: c.dial, Backoff: steep, StreamsPerConnection: 1, Keepalive: Keepalive{Time: 1000 * time.Hour}}, addressOf("one"))
		stream, sink := r.stream(named(rds, "a"))
		f.next().send(resp{typ: rds, res: clusters("a")})
		sink.untilNames(t, rds, "a")
		_, other := r.stream(all(cds))
		s := f.next()
		time.Sleep(time.Hour)
		c.all()[0].cut.Store(true)
		stream.SetInterest(sink.want(named(rds, "a", "new")))
		for range 100 {
			s.send(resp{typ: cds, res: clusters("c")})
			time.Sleep(time.Second)
		}
		other.untilNames(t, cds, "c")
		synctest.Wait()
		if is := sink.is(rds, "new"); is != xds.Pending || len(c.all()) != 2 {
			t.Errorf("it is %d, with %d connections", is, len(c.all()))
		}
	})
}

// servers are an origin that a connection of gRPC is balanced over.
func servers(n *inMemory, names ...string) (address string, all map[string]*fakeOrigin) {
	all = make(map[string]*fakeOrigin)
	m := manual.NewBuilderWithScheme(fmt.Sprint("servers", len(names)))
	var at resolver.State
	for _, name := range names {
		all[name] = n.origin(name)
		at.Addresses = append(at.Addresses, resolver.Address{Addr: name})
	}
	m.InitialState(at)
	resolver.Register(m)
	return m.Scheme() + ":///all", all
}

// next is the next stream that is opened at one of them, and at which.
func next(all map[string]*fakeOrigin) (*fakeStream, string) {
	for {
		for name, f := range all {
			select {
			case s := <-f.streams:
				return s, name
			default:
			}
		}
		time.Sleep(time.Second)
	}
}

// The server of a stream is asked, whichever it is, and no other in its place. It is looked at
// twice: they are asked in turn, and so once another one first.
func TestP57_TheServerOfTheStreamIsAsked(t *testing.T) {
	for what, c := range map[string]struct {
		dead, other, hung bool
		want              xds.Presence
	}{
		"both live":                         {want: xds.Absent},
		"the connection to it is dead":      {dead: true, want: xds.Pending},
		"the connection to another is dead": {other: true, want: xds.Absent},
		"it hangs":                          {hung: true, want: xds.Pending},
	} {
		t.Run(what, func(t *testing.T) {
			bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
				address, servers := servers(n, "one", "two")
				wires := &cables{n: n}
				r := startRelay(t, Options{Variant: v, Dialer: wires.dial, Backoff: steep, Keepalive: Keepalive{Time: 1000 * time.Hour}}, address)
				synctest.Wait()
				stream, sink := r.stream(named(rds, "a"))
				s, at := next(servers)
				s.send(resp{typ: rds, res: clusters("a")})
				sink.untilNames(t, rds, "a")
				time.Sleep(time.Hour)
				if len(wires.all()) != 2 {
					t.Fatalf("%d connections", len(wires.all()))
				}
				for _, w := range wires.all() {
					w.cut.Store(c.dead && w.to == at || c.other && w.to != at)
				}
				if c.hung {
					servers[at].health.Store(&fakeLife{hangs: true})
				}
				for _, names := range [][]string{{"new"}, {"new", "newer"}} {
					stream.SetInterest(sink.want(named(rds, append(names, "a")...)))
					time.Sleep(25 * time.Second)
					synctest.Wait()
					for _, name := range names {
						if is := sink.is(rds, name); is != c.want {
							t.Errorf("%s is %d", name, is)
						}
					}
				}
			})
		})
	}
}

// That others hang, which are asked as well, says nothing of it.
func TestP57_OtherServersHang(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		address, servers := servers(n, "one", "two", "three")
		log := new(logged)
		r := startRelay(t, Options{Variant: v, Dialer: n.dial, Backoff: steep, Keepalive: Keepalive{Time: 1000 * time.Hour}, Log: slog.New(slog.NewTextHandler(log, nil))}, address)
		synctest.Wait()
		stream, sink := r.stream(named(rds, "a"))
		s, at := next(servers)
		s.send(resp{typ: rds, res: clusters("a")})
		sink.untilNames(t, rds, "a")
		for name, f := range servers {
			if name != at {
				f.health.Store(&fakeLife{hangs: true})
			}
		}
		for _, names := range [][]string{{"new"}, {"new", "newer"}} {
			stream.SetInterest(sink.want(named(rds, append(names, "a")...)))
			time.Sleep(45 * time.Second)
			synctest.Wait()
			for _, name := range names {
				if is := sink.is(rds, name); is != xds.Absent || log.count("silent") > 0 {
					t.Errorf("%s is %d\n%s", name, is, log)
				}
			}
		}
	})
}

// Nor does it give it more time that they take theirs.
func TestP57_OtherServersAreSlow(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		address, servers := servers(n, "one", "two", "three")
		r := startRelay(t, Options{Variant: v, Dialer: n.dial, Backoff: steep, Keepalive: Keepalive{Time: 1000 * time.Hour}}, address)
		synctest.Wait()
		stream, sink := r.stream(named(rds, "a"))
		s, at := next(servers)
		s.send(resp{typ: rds, res: clusters("a")})
		sink.untilNames(t, rds, "a")
		for name, f := range servers {
			if name != at {
				f.health.Store(&fakeLife{takes: 1500 * time.Millisecond})
			}
		}
		for _, names := range [][]string{{"new"}, {"new", "newer"}, {"new", "newer", "newest"}} {
			stream.SetInterest(sink.want(named(rds, append(names, "a")...)))
			time.Sleep(20 * time.Second)
			synctest.Wait()
			for _, name := range names {
				if is := sink.is(rds, name); is != xds.Absent {
					t.Errorf("%s is %d", name, is)
				}
			}
		}
	})
}

// full is a relay with a stream that asks for "a", which it has, and "never", of an origin that takes
// no other on the same connection.
func full(t *testing.T, v xds.Variant, n *inMemory, absentAfter time.Duration, health *fakeLife) (*relay, *testSink, *cables, *logged) {
	f := n.origin("one", grpc.MaxConcurrentStreams(1), grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second}))
	f.health.Store(health)
	c := &cables{n: n}
	log := new(logged)
	r := startRelay(t, Options{Variant: v, AbsentAfter: absentAfter, Dialer: c.dial, Backoff: steep, Keepalive: Keepalive{Time: 30 * time.Second, Timeout: 10 * time.Second}, Log: slog.New(slog.NewTextHandler(log, nil))}, addressOf("one"))
	_, sink := r.stream(named(rds, "a", "never"))
	f.next().send(resp{typ: rds, res: clusters("a")})
	sink.untilNames(t, rds, "a")
	return r, sink, c, log
}

// An origin that takes as many streams on a connection as are open is asked on another. That
// the stream's own is there is then what keepalive says, each half a minute.
func TestP57_AFullConnectionIsNoSignOfDeath(t *testing.T) {
	for _, after := range []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 12 * time.Second, 15 * time.Second, 20 * time.Second, 27 * time.Second} {
		for what, dead := range map[string]bool{"alive": false, "dead": true} {
			t.Run(fmt.Sprint(what, after), func(t *testing.T) {
				bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
					r, sink, c, log := full(t, v, n, after, nil)
					c.all()[0].cut.Store(dead)
					if dead {
						time.Sleep(50 * time.Second)
					} else {
						time.Sleep(35*time.Second + after)
					}
					synctest.Wait()
					at := r.client.Origins()[0]
					if is := sink.is(rds, "never"); (is == xds.Absent) == dead || (at.Reconnects > 0) != dead {
						t.Errorf("it is %d: %+v", is, at)
					}
					if log.count("accepts fewer") > 1 || log.count("silent") > 0 && at.Reconnects == 0 {
						t.Error(log)
					}
				})
			})
		}
	}
}

// Nor is one that is full where no other is to be had: nobody knows, and what is asked for waits.
func TestP57_AFullConnectionAndNoOther(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		r, sink, _, log := full(t, v, n, 15*time.Second, nil)
		n.mu.Lock()
		n.at["one"] = nil
		n.mu.Unlock()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if is, at := sink.is(rds, "never"), r.client.Origins()[0]; is != xds.Pending || at.Silent > 0 || log.count("silent") > 0 {
			t.Errorf("it is %d: %+v\n%s", is, at, log)
		}
	})
}

// check makes a health check on a connection.
func (r *relay) check() error {
	at := r.client.sites[0]
	o := at.origin.(*grpcOrigin)
	c, err := o.pool.lease()
	if err != nil {
		return err
	}
	defer o.pool.release(c)
	g := &grpcSession{origin: o, conn: c, stream: &line{Stream: r.client.NewStream("asks", nil, nil), at: at}}
	_, _, err = g.check(r.ctx, c)
	return err
}

// Nobody answers over a connection that is not there, whatever grpc says of it.
func TestP57_AConnectionThatIsNotThereIsNoSignOfLife(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	r := startRelay(t, Options{}, l.Addr().String())
	if err := r.check(); err == nil {
		t.Error("it lives")
	}
}

// Nor is what gRPC says of one that breaks meanwhile, though it says for a moment that it is
// there.
func TestP57_AConnectionThatBreaksIsNoSignOfLife(t *testing.T) {
	for range 50 {
		f := startFake(t)
		f.health.Store(&fakeLife{hangs: true})
		r := startRelay(t, Options{}, f.address)
		answer := make(chan error, 1)
		go func() {
			answer <- r.check()
		}()
		for f.checks.Load() == 0 {
			runtime.Gosched()
		}
		f.server.Stop()
		if err := <-answer; err == nil {
			t.Fatal("it lives")
		}
	}
}

// A check that waits for its answer has a place as a stream has.
func TestACheckHasAPlaceOnItsConnection(t *testing.T) {
	for _, places := range []uint32{1, 2} {
		bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
			f := n.origin("one", grpc.MaxConcurrentStreams(places))
			log := new(logged)
			r := startRelay(t, Options{Variant: v, Dialer: n.dial, Backoff: steep, Keepalive: Keepalive{Time: 1000 * time.Hour}, Log: slog.New(slog.NewTextHandler(log, nil))}, addressOf("one"))
			_, sink := r.stream(named(rds, "a", "never"))
			f.next().send(resp{typ: rds, res: clusters("a")})
			sink.untilNames(t, rds, "a")
			f.health.Store(&fakeLife{hangs: true})
			for f.checks.Load() == 0 {
				time.Sleep(100 * time.Millisecond)
				synctest.Wait()
			}
			_, other := r.stream(all(cds))
			f.next().send(resp{typ: cds, res: clusters("c")})
			other.untilNames(t, cds, "c")
			if at := r.client.Origins()[0]; at.Reconnects > 0 || log.count(fmt.Sprint("accepted=", places)) == 0 || log.count("accepts fewer") > log.count(fmt.Sprint("accepted=", places)) {
				t.Errorf("%+v\n%s", at, log)
			}
		})
	}
}
