package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xdstest"
)

// command runs a command of the binary, and returns its output.
func command(t testing.TB, args ...string) string {
	t.Helper()
	out, err := xdstest.Command(t, args...).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		t.Fatalf("%v: %v: %s", args, err, exit.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// endings are the statuses of ended streams, by the client's id.
type endings struct {
	mu sync.Mutex
	of map[string]codes.Code
	at []time.Time
}

func (e *endings) note(c *fleet.Client, err error) {
	if err == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, again := e.of[c.ID()]; !again { // a refused client retries again and again
		e.of[c.ID()] = status.Code(errors.Unwrap(err))
		e.at = append(e.at, time.Now())
	}
}

func (e *endings) all() (map[string]codes.Code, []time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.of), slices.Clone(e.at)
}

// After a change of rules, relay explain --diff lists the clients that move. Exactly their streams
// end, over the drain time; other clients receive nothing because of it. Rules that revert the
// change while streams are being ended leave the rest in place.
func TestP5_ReloadedRules(t *testing.T) {
	t.Parallel()
	o := origin(t, xdstest.Linear)
	for _, c := range []string{"west", "east", "lost"} {
		o.Put(c, xdstest.Web(1)...)
	}
	drain := xdstest.Config{"downstream.drain": "1s"}
	r := follow(t, o.Address, drain)
	ended := &endings{of: map[string]codes.Code{}}
	clients := map[string]*fleet.Client{}
	come := func(id, cl string, v fleet.Variant) {
		clients[id] = client(t, r.Address, fleet.ClientConfig{Node: node(id, cl), Variant: v, Behaviour: fleet.Envoy, OnStream: ended.note})
	}
	want := map[string]codes.Code{} // the clients to end, with the status
	for i := range 10 {
		v := variants[i%2]
		come(fmt.Sprint("stays-", i), "west", v)
		come(fmt.Sprint("moves-", i), "west", v)
		want[fmt.Sprint("moves-", i)] = codes.Unavailable
		come(fmt.Sprint("other-", i), "east", v)
	}
	for i, v := range variants {
		come(fmt.Sprint("goes-", i), "lost", v)
		want[fmt.Sprint("goes-", i)] = codes.PermissionDenied
	}
	for _, c := range clients {
		waitFor(t, c, "what the origin has", hasAll(xdstest.Web(1)...))
	}
	counts := map[string]fleet.Counters{}
	for id, c := range clients {
		waitFor(t, c, "its ACKs", func(c *fleet.Client) bool { n := c.Counters(); return n.Acks == n.Responses })
		counts[id] = c.Counters()
	}

	rules := maps.Clone(drain)
	rules["aggregation.rules"] = []map[string]any{
		{"match": `node.id.startsWith("moves")`, "key": []string{"node.cluster", `"moved"`}},
		{"match": `node.cluster != "lost"`, "key": "node.cluster"},
	}
	next := filepath.Join(t.TempDir(), "next.yaml")
	replace(t, next, r.with(rules))
	var said struct {
		Clients int `json:"clients"`
		Moving  []struct {
			Node  string `json:"node"`
			Types []struct {
				From    string `json:"from"`
				To      string `json:"to"`
				Refused string `json:"refused"`
			} `json:"types"`
		} `json:"items"`
	}
	if err := json.Unmarshal([]byte(command(t, "explain", "--diff", next, "--admin", r.Admin, "-o", "json")), &said); err != nil {
		t.Fatal(err)
	}
	told := map[string]codes.Code{}
	for _, m := range said.Moving {
		told[m.Node] = codes.Unavailable
		for _, x := range m.Types {
			if x.Refused != "" {
				told[m.Node] = codes.PermissionDenied
			} else if x.From != "west" || x.To != "west/moved" {
				t.Errorf("%s: %+v", m.Node, x)
			}
		}
	}
	if said.Clients != len(clients) || !maps.Equal(told, want) {
		t.Errorf("explain --diff lists %d clients, %v, want %v", said.Clients, told, want)
	}
	table := command(t, "explain", "--diff", next, "--admin", "http://"+r.Admin)
	for _, line := range []string{"10       10     west  west/moved", "2        2      lost  refused", "12 of 32 clients would reconnect, over 1s"} {
		if !strings.Contains(table, line) {
			t.Errorf("the table has no line %q:\n%s", line, table)
		}
	}
	if got, _ := ended.all(); len(got) > 0 {
		t.Errorf("to ask has ended %v", got)
	}

	r.to(rules, `msg="rules, identity or secrets changed: the relay ends the affected streams" moving=10 refused=2 clients=32 over=1s`)
	xdstest.Eventually(t, "the ends", xdstest.Holds(func() bool { got, _ := ended.all(); return len(got) == len(want) }))
	got, at := ended.all()
	if !maps.Equal(got, want) {
		t.Errorf("ended are %v, want %v", got, want)
	}
	if d := at[len(at)-1].Sub(at[0]); d < 500*time.Millisecond {
		t.Errorf("the streams ended within %v, and should over 1s", d)
	}
	if n := r.Metric("downstream_ended_total", "reason", "key_changed"); n != 10 {
		t.Errorf("%v are counted", n)
	}
	o.Put("west", xdstest.Web(2)...)
	for id, c := range clients {
		cl := strings.Split(id, "-")[0]
		if cl == "goes" {
			continue
		}
		if cl == "other" {
			if now := c.Counters(); now != counts[id] {
				t.Errorf("%s received something: %+v, before %+v", id, now, counts[id])
			}
			continue
		}
		waitFor(t, c, "what the origin has now", hasAll(xdstest.Web(2)...))
		if n := c.Counters().Streams; (cl == "stays") != (n == 1) {
			t.Errorf("%s has had %d streams", id, n)
		}
	}
	xdstest.Eventually(t, "the key of the moved clients", xdstest.Holds(func() bool {
		return slices.ContainsFunc(r.keys(), func(k keyStatus) bool { return k.Key == "west/moved" && k.Members > 0 })
	}))
	if out := command(t, "explain", "--diff", next, "--admin", r.Admin); !strings.Contains(out, "clients keep their keys") {
		t.Errorf("afterwards explain --diff prints\n%s", out)
	}
}
