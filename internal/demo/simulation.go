package demo

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/spelling"
	"xdsrelay/internal/terminal"
)

// Simulation is a run of relay simulate. The clients call failed on their goroutines.
type Simulation struct {
	Relay, Cluster string
	Clients        int
	Delta          bool
	Dial           []grpc.DialOption
	Out            io.Writer

	mu     sync.Mutex
	errors int    // streams that failed or that the relay ended
	newest string // the error of the last of them
	shown  int    // errors at the last line
}

// simulateEvery is the time between two lines.
const simulateEvery = 2 * time.Second

// Run runs until ctx ends.
func (s *Simulation) Run(ctx context.Context) error {
	share := 0.0
	if s.Delta {
		share = 1
	}
	f, err := fleet.New(fleet.Config{
		Target: s.Relay, DialOptions: s.Dial, Clients: s.Clients, DeltaShare: share,
		Client: fleet.ClientConfig{DiscardBodies: true, OnStream: func(c *fleet.Client, err error) {
			if err != nil && ctx.Err() == nil {
				s.failed(c, err)
			}
		}},
		Nodes: func(i int) *corev3.Node { return nodeOf(i, s.Cluster) },
	})
	if err != nil {
		return err
	}
	// The clients leave after the last line, which counts them.
	clients, leave := context.WithCancel(context.WithoutCancel(ctx))
	defer leave()
	ended := make(chan error, 1)
	go func() { ended <- f.Run(clients) }()
	began := time.Now()
	tick := time.NewTicker(simulateEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.print(f, time.Since(began))
			continue
		case err := <-ended: // no client can use the target
			return fmt.Errorf("--relay: %s", terminal.FirstLine(err))
		case <-ctx.Done():
		}
		complete := s.print(f, time.Since(began))
		leave()
		if err := <-ended; err != nil {
			return err
		}
		printTotals(s.Out, f)
		if complete < s.Clients {
			return fmt.Errorf("simulate: %d of %d clients are not complete", s.Clients-complete, s.Clients)
		}
		return nil
	}
}

func (s *Simulation) failed(c *fleet.Client, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errors++
	s.newest = c.ID() + ": " + err.Error()
}

// print prints the line of this moment, and the newest error if there were errors since the last
// line. It returns the number of complete clients.
func (s *Simulation) print(f *fleet.Fleet, after time.Duration) (complete int) {
	connected := 0
	for _, c := range f.Clients() {
		if c.Connected() {
			connected++
		}
		if c.Complete() {
			complete++
		}
	}
	sum := f.Counters()
	s.mu.Lock()
	total, since, newest := s.errors, s.errors-s.shown, s.newest
	s.shown = s.errors
	s.mu.Unlock()
	// A terminal that has gone away is no reason to stop.
	_, _ = fmt.Fprintf(s.Out, "%6.1fs  %d of %d connected, %d complete, %d ACKs, %d NACKs, %d errors\n",
		after.Seconds(), connected, len(f.Clients()), complete, sum.Acks, sum.Nacks, total)
	if since > 0 {
		_, _ = fmt.Fprintf(s.Out, "         %s failed; the clients try again; the newest: %s\n", spelling.Counted(since, "stream"), terminal.OneLine(newest))
	}
	return complete
}

// printTotals prints what the clients of a fleet received and answered.
func printTotals(w io.Writer, f *fleet.Fleet) {
	c := f.Counters()
	_, _ = fmt.Fprintf(w, "the clients received %d responses, acknowledged %d and rejected %d\n", c.Responses, c.Acks, c.Nacks)
	for _, v := range f.Violations() {
		_, _ = fmt.Fprintf(w, "a client saw a protocol violation: %s\n", v)
	}
}
