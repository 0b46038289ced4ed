//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// returnMost bounds an outage, until all clients are up to date.
	returnMost = 3 * time.Minute
	// opensEvery is how often the number of streams to the origin is read.
	opensEvery = 50 * time.Millisecond
	// noticed is how long an origin is away before attempts are counted. Until then streams end that
	// had a response, and a busy machine sees that late.
	noticed = time.Second
)

// outageTime is how long an origin is away, more than noticed. Tests use less.
var outageTime = 10 * time.Second

// studyReturn measures the return of an origin after an outage (P54): the time until all clients
// have what changed meanwhile, the attempts at the origin while it is away, and the streams that are
// opened in a second.
func studyReturn(ctx context.Context, o *options) (*study, error) {
	s := &study{
		What:    fmt.Sprintf("the origin of %d keys with a client each is away for %s, and changes all keys meanwhile", o.load.Keys, outageTime),
		Columns: []string{"all up to date after s", "attempts/s while away", "most streams opened in a second"},
	}
	for _, how := range []struct {
		name             string
		accepts, another bool
	}{
		{name: "the origin refuses connections"},
		{name: "a proxy accepts them and ends streams", accepts: true},
		{name: "failover to a second origin", another: true},
	} {
		if err := o.outage(ctx, s, how.name, how.accepts, how.another); err != nil {
			return nil, fmt.Errorf("%s: %w", how.name, err)
		}
	}
	return s, nil
}

// outage measures one outage and adds its row. accepts: streams end, but connections are accepted.
// another: there is a second origin, and the time is that of the failover.
func (o *options) outage(ctx context.Context, s *study, name string, accepts, another bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, returnMost, fmt.Errorf("not done after %s", returnMost))
	defer cancel()
	own := *o
	var g *gate
	own.origins = func(origin string) ([]string, error) {
		var err error
		if g, err = newGate(origin); err != nil || !another {
			return []string{g.addr()}, err
		}
		return []string{g.addr(), origin}, nil
	}
	c, err := startRelay(ctx, &own)
	if g != nil {
		defer g.close()
	}
	if err != nil {
		return err
	}
	defer c.stop()
	if c.crowd, err = c.join(ctx, c.load); err != nil {
		return err
	}
	if _, err := c.await(ctx); err != nil {
		return err
	}
	if err := c.prepare(ctx); err != nil {
		return err
	}
	counting, stop := context.WithCancel(ctx)
	defer stop()
	var opens int
	var counter sync.WaitGroup
	counter.Go(func() { opens = c.admin.mostOpens(counting) })

	g.away(accepts)
	begin := monotonic()
	c.gen++
	if _, err := c.feed.ask(ctx, command{Do: doPush}); err != nil {
		return err
	}
	var attempts *spread
	if !another {
		first := 0
		for _, wait := range []time.Duration{noticed, outageTime - noticed} {
			first = g.attempts()
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		attempts = once(float64(g.attempts()-first) / (outageTime - noticed).Seconds())
		begin = monotonic()
		g.back()
	}
	r, err := c.await(ctx)
	stop()
	counter.Wait()
	if err != nil {
		return err
	}
	o.log("%s: all up to date after %.1f s, %d streams opened in a second at most", name, float64(r.Last-begin)/1e9, opens)
	s.add(name, once(float64(r.Last-begin)/1e9), attempts, once(float64(opens)))
	return nil
}

// opensOver is the time over which opened streams are counted. It is longer than a busy machine delays
// what the relay has paced already.
const opensOver = 3 * time.Second

// mostOpens returns by how much the number of open streams to origins rose in a second, at most, as the
// mean of opensOver.
func (a admin) mostOpens(ctx context.Context) (most int) {
	type reading struct { // n is that of a time between asked and at
		asked, at time.Time
		n         int
	}
	var seen []reading // those of opensOver, and the one before
	tick := time.NewTicker(opensEvery)
	defer tick.Stop()
	for over := false; !over; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			over = true // one last reading
		}
		asked := time.Now()
		n, err := a.sums(context.WithoutCancel(ctx), "xdsrelay_upstream_streams")
		if err != nil {
			continue
		}
		now := reading{asked, time.Now(), int(n[0])}
		for len(seen) > 1 && now.at.Sub(seen[1].at) >= opensOver {
			seen = seen[1:]
		}
		for _, was := range seen {
			// A busy machine may read late, or seldom.
			most = max(most, int(float64(now.n-was.n)/max(opensOver, now.at.Sub(was.asked)).Seconds()))
		}
		seen = append(seen, now)
	}
	return most
}

// gate is a TCP proxy before an origin, which can be away.
type gate struct {
	listener net.Listener
	origin   string
	proxy    *grpc.Server // ends every stream
	ends     net.Listener // its
	wait     sync.WaitGroup

	mu    sync.Mutex
	to    string // "": connections are closed
	tried int    // attempts since it is away
	conns map[net.Conn]bool
}

func newGate(origin string) (*gate, error) {
	g := &gate{origin: origin, to: origin, conns: make(map[net.Conn]bool)}
	var err error
	if g.listener, err = listen(); err != nil {
		return nil, err
	}
	if g.ends, err = listen(); err != nil {
		return nil, errors.Join(err, g.listener.Close())
	}
	g.proxy = grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
		g.count()
		return status.Error(codes.Unavailable, "no healthy upstream")
	}))
	g.wait.Go(func() { _ = g.proxy.Serve(g.ends) })
	g.wait.Go(g.accept)
	return g, nil
}

func (g *gate) addr() string { return g.listener.Addr().String() }

func (g *gate) count() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tried++
}

// attempts is the number of connections, or of streams if it accepts them, since it is away.
func (g *gate) attempts() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.tried
}

func (g *gate) accept() {
	for {
		in, err := g.listener.Accept()
		if err != nil {
			return
		}
		g.mu.Lock()
		to := g.to
		if to == "" {
			g.tried++
		}
		g.mu.Unlock()
		if to == "" {
			_ = in.Close()
			continue
		}
		out, err := net.Dial("tcp", to)
		if err != nil {
			_ = in.Close()
			continue
		}
		g.mu.Lock()
		g.conns[in], g.conns[out] = true, true
		g.mu.Unlock()
		forward := func(from, to net.Conn) {
			_, _ = io.Copy(to, from)
			_, _ = in.Close(), out.Close()
			g.mu.Lock()
			defer g.mu.Unlock()
			delete(g.conns, from)
		}
		g.wait.Go(func() { forward(in, out) })
		g.wait.Go(func() { forward(out, in) })
	}
}

// lead ends all connections, and leads new ones elsewhere.
func (g *gate) lead(to string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.to, g.tried = to, 0
	for c := range g.conns {
		_ = c.Close()
	}
}

// away makes the origin away. accepts: connections are still accepted.
func (g *gate) away(accepts bool) {
	to := ""
	if accepts {
		to = g.ends.Addr().String()
	}
	g.lead(to)
}

func (g *gate) back() { g.lead(g.origin) }

func (g *gate) close() {
	_ = g.listener.Close()
	g.lead("")
	g.proxy.Stop()
	g.wait.Wait()
}
