package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"xdsrelay/internal/telemetry"
)

// After random events relays agree within a minute: on who is alive, on their flags, and on the
// candidates of keys.
func TestRandomEvents(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	run(t, func(t *testing.T, n *network) {
		var relays []*relay
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			relays = append(relays, n.start(name))
		}
		links := func(up bool, of func(i, j int) bool) {
			for i, x := range relays {
				for j, y := range relays {
					if i != j && of(i, j) {
						n.Link(x.address, y.address, up)
					}
				}
			}
		}
		all := func(int, int) bool { return true }
		for range 20 {
			i, cut, event := random.IntN(len(relays)), random.IntN(len(relays)-1)+1, ""
			switch random.IntN(6) {
			case 0:
				event = "kill and restart"
				relays[i].kill()
				sleep(time.Duration(random.IntN(60)) * time.Second)
				relays[i] = n.start(relays[i].options.Name)
			case 1:
				event = "leave and return"
				relays[i].stop()
				sleep(time.Duration(random.IntN(60)) * time.Second)
				relays[i] = n.start(relays[i].options.Name)
			case 2:
				event = "split"
				links(false, func(i, j int) bool { return (i < cut) != (j < cut) })
			case 3:
				event = "one-way loss"
				links(false, func(from, to int) bool { return from < cut && to >= cut })
			case 4:
				event = "no gossip at all"
				links(false, all)
			case 5:
				event = "flags"
				relays[i].SetDraining(random.IntN(2) == 0)
				relays[i].SetReady(random.IntN(4) > 0)
			}
			sleep(time.Duration(random.IntN(300)) * time.Second)
			links(true, all)
			sleep(time.Minute)
			for _, r := range relays {
				if got, want := seen(r), seen(relays[0]); got != want || strings.Count(got, "alive") != len(relays) {
					t.Fatalf("after %s: %s sees\n%s\n%s sees\n%s", event, r.options.Name, got, relays[0].options.Name, want)
				}
			}
		}
	})
}

// seen describes the members that are not gone, and the candidates of some keys.
func seen(r *relay) string {
	var out []string
	for _, m := range r.Members() {
		if m.State == telemetry.MemberAlive || m.State == telemetry.MemberUnusable {
			out = append(out, fmt.Sprintf("%s %s %s ready=%t draining=%t %s", m.id, m.State, m.Address, m.Ready, m.Draining, m.Problem))
		}
	}
	slices.Sort(out)
	text := strings.Join(out, "\n")
	for i := range 5 {
		if !strings.Contains(text, "draining=true") { // it alone ranks itself as before
			text += "\n" + r.candidates(fmt.Sprint(i))
		}
	}
	return text
}
