package overview

import (
	"context"
	"slices"
	"sync"
	"time"

	"xdsrelay/internal/telemetry"
)

const (
	sampleEvery = 10 * time.Second
	// maxSamples is fifteen minutes of samples.
	maxSamples = 90
)

// Numbers are what a sample is made of. They cost little to read.
type Numbers struct {
	Clients int // streams and REST clients
	States  States
	Totals
}

// Totals count since the relay started.
type Totals struct {
	Responses int64 `json:"responses"`
	Acks      int64 `json:"acks"`
	Nacks     int64 `json:"nacks"`
}

// ReadNumbers reads the numbers of a sample from metrics: it reads no client.
func ReadNumbers(m *telemetry.Metrics) Numbers {
	n := Numbers{Totals: ReadTotals(m), States: States{
		Synced: m.ClientState(telemetry.ClientSynced), Stale: m.ClientState(telemetry.ClientStale), Unconfirmed: m.ClientState(telemetry.ClientUnconfirmed),
		NotSent: m.ClientState(telemetry.ClientNotSent), Nacked: m.ClientState(telemetry.ClientNacked),
	}}
	for i := range m.Streams {
		n.Clients += m.Streams[i].Value()
	}
	return n
}

// ReadTotals reads the totals from metrics.
func ReadTotals(m *telemetry.Metrics) Totals {
	sent, acks, nacks := m.Responses()
	return Totals{Responses: sent, Acks: acks, Nacks: nacks}
}

// Sample is the fleet at one time in the past.
type Sample struct {
	At      time.Time `json:"at"`
	Clients int       `json:"clients"`
	// States counts types on the streams of clients.
	States States `json:"types_by_state"`
	// The rates are per second, since the sample before.
	Responses float64 `json:"responses_per_second"`
	Acks      float64 `json:"acks_per_second"`
	Nacks     float64 `json:"nacks_per_second"`
}

// Sampler keeps samples of the last fifteen minutes, so that a page that was just opened has its
// curves. It is safe for concurrent use.
type Sampler struct {
	read func() Numbers

	mu      sync.Mutex
	samples []Sample // the oldest first
}

// NewSampler makes a Sampler of the numbers that read returns. It is empty until Run runs.
func NewSampler(read func() Numbers) *Sampler { return &Sampler{read: read} }

// Run takes a sample every ten seconds until ctx ends.
func (s *Sampler) Run(ctx context.Context) {
	tick := time.Tick(sampleEvery)
	before, since := s.read().Totals, time.Now()
	for {
		select {
		case <-tick:
			n, now := s.read(), time.Now()
			s.add(sample(&n, &before, now, now.Sub(since)))
			before, since = n.Totals, now
		case <-ctx.Done():
			return
		}
	}
}

// sample returns the sample of the numbers n, which were read at the time at. before has the totals
// of the previous sample, and took is the time since then.
func sample(n *Numbers, before *Totals, at time.Time, took time.Duration) Sample {
	rate := func(now, before int64) float64 { return float64(now-before) / took.Seconds() }
	return Sample{
		At: at, Clients: n.Clients, States: n.States,
		Responses: rate(n.Responses, before.Responses), Acks: rate(n.Acks, before.Acks), Nacks: rate(n.Nacks, before.Nacks),
	}
}

func (s *Sampler) add(n Sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.samples) == maxSamples {
		s.samples = slices.Delete(s.samples, 0, 1)
	}
	s.samples = append(s.samples, n)
}

// Samples returns the samples, the oldest first.
func (s *Sampler) Samples() []Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Sample{}, s.samples...) // not nil, which JSON would show as null
}
