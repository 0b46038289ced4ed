//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// act is a fault or another action.
type act string

const (
	relayKill  act = "kill relay"
	relayStop  act = "stop relay"
	originKill act = "kill origin"
	originStop act = "stop origin"
	cut        act = "cut"
	delay      act = "delay"
	throttle   act = "throttle"
	stall      act = "stall"     // no data passes, and connections stay open; then it passes again
	halfOpen   act = "half-open" // the same, and then the connections are lost
	reject     act = "reject"
	blackout   act = "kill relay and origins"
	dawn       act = "start the relay alone" // of a blackout: origins start at its end
	reconnect  act = "reconnect"
	forgetful  act = "reconnect without versions"
	move       act = "move"
	replace    act = "replace client"
	rename     act = "ask for other names"
)

// where is the kind of object of an act.
type where uint8

const (
	atRelay where = iota
	atOrigin
	upstream   // the proxy between a relay and an origin
	downstream // the proxy between a client and a relay
	atClient
)

// mix is how often each act is done, and where.
var mix = []struct {
	act   act
	where where
	share int
	lasts bool
}{
	{relayKill, atRelay, 3, true}, {relayStop, atRelay, 2, true},
	{blackout, atRelay, 2, true},
	{originKill, atOrigin, 3, true}, {originStop, atOrigin, 2, true},
	{cut, upstream, 2, false}, {delay, upstream, 1, true}, {throttle, upstream, 1, true}, {stall, upstream, 1, true},
	{halfOpen, upstream, 1, true}, {reject, upstream, 1, true},
	{cut, downstream, 3, false}, {delay, downstream, 2, true}, {throttle, downstream, 1, true}, {stall, downstream, 2, true},
	{halfOpen, downstream, 2, true}, {reject, downstream, 1, true},
	{reconnect, atClient, 2, false}, {forgetful, atClient, 1, false}, {move, atClient, 3, false}, {replace, atClient, 2, false},
	{rename, atClient, 3, false},
}

// step is the beginning or the end of an act.
type step struct {
	at    time.Duration // from the round's start
	fault int           // number within the round
	act   act
	where where
	a, b  int // which relay, origin or client; for a proxy, b is the relay or origin behind it
	end   bool
	size  int64 // of a delay (ns) or a throttle (bytes per second); of names a seed
}

func (s step) String() string {
	word := "begin"
	if s.end {
		word = "end"
	}
	return fmt.Sprintf("%d %s %s %d/%d", s.fault, word, s.act, s.a, s.b)
}

// scale has the numbers of all objects.
type scale struct {
	relays, origins, clients int
	faults                   int           // per round
	longest                  time.Duration // of one fault
}

// plan returns a round's steps in their order. It depends only on the seed and the round.
func plan(seed uint64, round int, s scale) []step {
	rng := rand.New(rand.NewPCG(seed, uint64(round)<<8|1))
	total := 0
	for _, m := range mix {
		total += m.share
	}
	var steps []step
	busy := make(map[string]time.Duration) // until when something has a fault
	at := 300 * time.Millisecond
	for n := 1; n <= s.faults; n++ {
		at += time.Duration(rng.Int64N(int64(900 * time.Millisecond)))
		for {
			share := rng.IntN(total)
			i := 0
			for share >= mix[i].share {
				share -= mix[i].share
				i++
			}
			m := mix[i]
			st := step{at: at, fault: n, act: m.act, where: m.where}
			switch m.where {
			case atRelay:
				st.a = rng.IntN(s.relays)
			case atOrigin:
				st.a = rng.IntN(s.origins)
			case upstream:
				st.a, st.b = rng.IntN(s.relays), rng.IntN(s.origins)
			case downstream:
				st.a, st.b = rng.IntN(s.clients), rng.IntN(s.relays)
			case atClient:
				st.a = rng.IntN(s.clients)
			}
			lasts := 100*time.Millisecond + time.Duration(rng.Int64N(int64(s.longest)))
			switch m.act {
			case delay:
				st.size = int64(10*time.Millisecond) + rng.Int64N(int64(150*time.Millisecond))
			case throttle:
				st.size = 2000 + rng.Int64N(30000)
			case rename:
				st.size = rng.Int64()
			}
			on := fmt.Sprint(m.where, st.a, "/", st.b)
			if m.where == atClient {
				// A client that is replaced gets new proxies.
				on = ""
			}
			all := []string{on}
			switch m.act {
			case blackout:
				for o := range s.origins {
					all = append(all, fmt.Sprint(atOrigin, o, "/", 0))
				}
			case replace:
				all = nil
				for b := range s.relays {
					all = append(all, fmt.Sprint(downstream, st.a, "/", b))
				}
			}
			if slices.ContainsFunc(all, func(on string) bool { return on != "" && busy[on] > at }) {
				continue
			}
			steps = append(steps, st)
			if m.lasts {
				for _, on := range all {
					busy[on] = at + lasts
				}
				if m.act == blackout {
					steps = append(steps, step{at: at + lasts/3, fault: n, act: dawn, where: m.where, a: st.a})
				}
				st.end, st.at = true, at+lasts
				steps = append(steps, st)
			}
			break
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int { return int(a.at - b.at) })
	return steps
}
