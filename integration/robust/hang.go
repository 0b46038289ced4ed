//go:build linux

package main

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"xdsrelay/integration/robust/check"
)

// An origin that hangs for longer than the relay's absent_after is another matter than one
// that is away for a moment: clients of a relay that has just started are to be served
// what is stored, be it that streams cannot be opened or that nothing comes on them, and
// nothing is to be taken for absent. So some rounds are of nothing else.

const (
	// absentAfter is the relays'.
	absentAfter = 20 * time.Second
	// maxAge is that of what is stored: longer than a round.
	maxAge = 5 * time.Minute
	// hangEvery is how many rounds there are for one in which all origins hang.
	hangEvery = 4
	// asking is how long clients have to find a relay that is back, and asked how much
	// longer than absent_after they may wait for what is stored.
	asking = 4 * time.Second
	asked  = 6 * time.Second
	// someRest is how long relays are looked at when everybody is at rest after that.
	someRest = 4 * time.Second
)

// hangs reports whether a round is of this kind.
func (s *stage) hangs(round int) bool { return s.settings.hangs && round%hangEvery == 2 }

// before is what comes before that round: what is stored for sure is what is asked for
// over connections that no fault has touched, and so by clients that are new.
func (s *stage) before(round int) error {
	if err := s.renew(round); err != nil {
		return err
	}
	return s.rest()
}

// hang is a round: all origins are stopped, or say nothing, as the relays are killed and
// start again, until what is stored has to be served; who came meanwhile too.
func (s *stage) hang(round int) error {
	from, to, how := syscall.SIGSTOP, syscall.SIGCONT, "stop all origins"
	if (s.seed+uint64(round/hangEvery))%2 == 0 {
		from, to, how = mute, unmute, "mute all origins"
	}
	fmt.Fprintf(s.out, "round %d: %s for %s\n", round, how, absentAfter+asking+asked)
	s.history.Add(check.Event{What: check.Fault, Text: how})
	for _, o := range s.origins {
		o.signal(from)
	}
	defer func() {
		s.history.Add(check.Event{What: check.Fault, Text: how + ": over"})
		for _, o := range s.origins {
			o.signal(to)
		}
	}()
	kill := step{act: relayKill, where: atRelay}
	for i, r := range s.relays {
		kill.a = i
		if err := s.doRelay(kill, r); err != nil {
			return err
		}
	}
	kill.end = true
	if err := s.each(len(s.relays), func(i int) error { return s.doRelay(kill, s.relays[i]) }); err != nil {
		return err
	}
	// New clients know of nothing.
	if err := s.renew(round + 1); err != nil {
		return err
	}
	if !sleep(s.ctx, asking) {
		return s.ctx.Err()
	}
	upto := s.history.Add(check.Event{What: check.Fault, Text: "who is there by now has to be served"})
	if err := s.calm(s.ctx, absentAfter+asked); err != nil {
		return err
	}
	for _, r := range s.relays {
		if r.more["store"] != nil {
			s.history.Add(check.Event{What: check.Waited, Relay: r.name, Process: r.life, Upto: upto})
		}
	}
	return nil
}

// renew replaces a third of the clients.
func (s *stage) renew(which int) error {
	for i := range s.clients {
		if i%3 == which%3 {
			if err := s.doClient(step{act: replace, where: atClient, a: i}); err != nil {
				return err
			}
		}
	}
	return nil
}

// maxCalm is how much of a processor a relay may use while there is nothing to do.
const maxCalm = 0.2

// calm waits, while there is nothing to do for the relays, and holds them to that.
func (s *stage) calm(ctx context.Context, d time.Duration) error {
	used := func() (out []time.Duration, err error) {
		for _, r := range s.relays {
			r.mu.Lock()
			p := r.proc
			r.mu.Unlock()
			t, err := p.used()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", r.name, err)
			}
			out = append(out, t)
		}
		return out, nil
	}
	before, err := used()
	if err != nil {
		return err
	}
	began := time.Now()
	if !sleep(ctx, d) {
		return ctx.Err()
	}
	after, err := used()
	if err != nil {
		return err
	}
	took := time.Since(began)
	for i, r := range s.relays {
		part := float64(after[i]-before[i]) / float64(took)
		fmt.Fprintf(s.out, "%s used %.1f %% of a processor in %s with nothing to do\n", r.name, 100*part, took.Round(time.Second))
		if part > maxCalm {
			return fmt.Errorf("%s used %.0f %% of a processor in %s with nothing to do", r.name, 100*part, took.Round(time.Second))
		}
	}
	return nil
}
