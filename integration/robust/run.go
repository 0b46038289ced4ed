//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"time"

	"xdsrelay/integration/robust/check"
	"xdsrelay/internal/xds"
)

// restMost bounds the wait until all clients have the newest. Only a failing run reaches it.
const restMost = time.Minute

// restSlow is the time after which the output names the clients that a rest waits for.
const restSlow = 5 * time.Second

// rounds plays rounds until the time is over, at least one. A round has changes and faults, then
// rest. An error means that the run itself failed; wrong behaviour of the relay is in the history.
func (s *environment) rounds() error {
	changes := rand.New(rand.NewPCG(s.seed, 2))
	if err := s.rest(); err != nil {
		return err
	}
	began := time.Now()
	for round := 1; round == 1 || time.Since(began) < s.last; round++ {
		ctx, cancel := context.WithCancel(s.ctx)
		changed := make(chan struct{})
		go func() {
			defer close(changed)
			s.change(ctx, changes)
		}()
		steps := plan(s.seed, round, s.settings.scale)
		fmt.Fprintf(s.out, "round %d: %d steps\n", round, len(steps))
		err := s.play(steps)
		cancel()
		<-changed
		if err == nil {
			err = s.rest()
		}
		if err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return nil
}

// change changes the catalog until ctx ends.
func (s *environment) change(ctx context.Context, rng *rand.Rand) {
	for sleep(ctx, 5*time.Millisecond+time.Duration(rng.Int64N(int64(100*time.Millisecond)))) {
		s.catalog.change(rng, pick(rng, s.keys))
	}
}

// play performs the steps of a round, each not before its time. The plan gives the order, however
// long a step takes.
func (s *environment) play(steps []step) error {
	began := time.Now()
	for _, st := range steps {
		if !sleep(s.ctx, st.at-time.Since(began)) {
			return s.ctx.Err()
		}
		if err := s.do(st); err != nil {
			return fmt.Errorf("%s: %w", st, err)
		}
	}
	return nil
}

// sleep reports whether the time passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(max(d, 0))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

var errNoRest = errors.New("there was no rest")

// rest waits until all clients have the newest, and records what they hold. If that takes too long,
// the checker finds what is missing.
func (s *environment) rest() error {
	ctx, cancel := context.WithTimeout(s.ctx, restMost)
	defer cancel()
	began := time.Now()
	why, last := "nothing was looked at", ""
	for {
		var err error
		if why, err = s.unrest(); err != nil {
			return err
		}
		if why != "" {
			last = why
		}
		if why == "" || !sleep(ctx, 50*time.Millisecond) {
			break
		}
	}
	for _, c := range s.clients {
		for _, kind := range kinds {
			if h := c.holds(kind); len(h.Names) > 0 || h.Wild {
				s.history.Add(check.Event{What: check.Holds, Client: c.name, Stream: int(c.open.Load()), Key: c.key, Type: kind, Resources: h.has})
			}
		}
	}
	s.history.Add(check.Event{What: check.Rest, Text: why})
	if why != "" {
		return fmt.Errorf("%w after %s: %s", errNoRest, time.Since(began).Round(time.Second), why)
	}
	if err := s.stored(ctx); err != nil {
		return err
	}
	took := time.Since(began)
	if took < restSlow {
		last = ""
	}
	fmt.Fprintln(s.out, strings.TrimSpace(fmt.Sprintf("at rest after %s %s", took.Round(10*time.Millisecond), last)))
	return nil
}

// stored waits, after a rest, until the relays' stores have what their clients have acknowledged.
func (s *environment) stored(ctx context.Context) error {
	for _, r := range s.relays {
		if !r.stores() {
			continue
		}
		for {
			all, err := r.stored()
			if err != nil {
				return err
			}
			if all {
				break
			}
			if !sleep(ctx, 50*time.Millisecond) {
				return fmt.Errorf("%s did not store what its clients have in %s", r.name, restMost)
			}
		}
		s.history.Add(check.Event{What: check.Stored, Relay: r.name, Process: r.number})
	}
	return nil
}

// typeState is a client's subscription to a type, with the contents that it holds.
type typeState struct {
	check.Wants
	has map[string]string
}

func (c *client) holds(kind string) typeState {
	h := typeState{Wants: check.Wants{Type: kind, Variant: c.variant, Upstream: c.relays[c.relay()].variant}, has: make(map[string]string)}
	typ := xds.TypeURL(kind)
	h.Names, h.Wild = c.Names(typ)
	c.mu.Lock()
	h.Received = maps.Clone(c.received[kind])
	c.mu.Unlock()
	for name, r := range c.Resources(typ) {
		h.has[name] = content(r.Body)
	}
	return h
}

// unrest returns why there is no rest yet, empty if there is.
func (s *environment) unrest() (string, error) {
	for _, o := range s.origins {
		if all, err := o.current(); err != nil {
			return "", err
		} else if !all {
			return o.name + " has not everything yet", nil
		}
	}
	newest := make(map[[3]string]map[string]string) // by origin, key and type
	for _, o := range s.origins {
		for _, key := range s.keys {
			all := s.catalog.of(key, o.name)
			for _, kind := range kinds {
				newest[[3]string{o.name, key, kind}] = all.contents(kind)
			}
		}
	}
	for _, c := range s.clients {
		if !c.Connected() {
			return c.String(), nil
		}
		for _, kind := range kinds {
			h := c.holds(kind)
			var lacks []check.Lack
			for _, o := range s.origins {
				if lacks = h.Lacks(h.has, newest[[3]string{o.name, c.key, kind}]); len(lacks) == 0 {
					break
				}
			}
			if len(lacks) > 0 {
				return fmt.Sprintf("%s at %s: %s: %v", c, s.relays[c.relay()].name, kind, lacks), nil
			}
		}
	}
	return "", nil
}
