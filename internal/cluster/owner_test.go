package cluster

import (
	"fmt"
	"log/slog"
	"math"
	"testing"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// clusterOf returns a cluster with so many members, all of them ready.
func clusterOf(t testing.TB, members int) *Cluster {
	metrics, err := telemetry.New(telemetry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Options{Name: "relay-0", Label: "test", Address: "10.0.0.1:15020", Metrics: metrics, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	c.SetReady(true)
	for i := 1; i < members; i++ {
		addMember(c, i)
	}
	return c
}

func addMember(c *Cluster, i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := fmt.Sprintf("relay-%d", i)
	c.peers[name] = &peer{Member: Member{Name: name, id: name, State: telemetry.MemberAlive, Ready: true}, known: true}
	c.update()
}

// within fails unless a number of n independent events, each with probability p, is within four standard
// deviations of what is expected.
func within(t *testing.T, what string, got, n int, p float64) {
	t.Helper()
	mean := float64(n) * p
	if d := math.Abs(float64(got) - mean); d > 4*math.Sqrt(mean*(1-p)) {
		t.Errorf("%s: %d, expected about %.0f", what, got, mean)
	}
}

// Each member owns its share of the keys, and is second for its share. One member more takes only its
// share.
func TestRendezvous(t *testing.T) {
	const members, keys = 100, 100_000
	c := clusterOf(t, members)
	var key [keys]xds.Key
	for i := range key {
		key[i] = xds.NewKey("service", fmt.Sprint(i))
	}
	var before [keys][2]*Member
	owned, second := make(map[string]int), make(map[string]int)
	follows := make(map[string]int) // the second, of one owner's keys
	for i, k := range key {
		before[i] = [2]*Member(c.Candidates(k))
		owner := before[i][0].Name
		owned[owner]++
		second[before[i][1].Name]++
		if owner == "relay-7" {
			follows[before[i][1].Name]++
		}
	}
	for i := range members {
		name := fmt.Sprintf("relay-%d", i)
		within(t, name+" owns", owned[name], keys, 1./members)
		within(t, name+" is second", second[name], keys, 1./members)
		if i != 7 {
			within(t, name+" is second to relay-7", follows[name], owned["relay-7"], 1./(members-1))
		}
	}
	addMember(c, members)
	const looked = keys / 5
	moved := 0
	for i, k := range key[:looked] {
		now := c.Candidates(k)
		if now[0].Name == "relay-100" {
			moved++
			now = now[1:]
		}
		if now[0].Name != before[i][0].Name {
			t.Fatalf("%s moved from %s to %s", k, before[i][0].Name, now[0].Name)
		}
	}
	within(t, "moved", moved, looked, 1./(members+1))
}

// The order for a key is the same in all releases: members of two releases have to agree.
func TestRendezvousIsStable(t *testing.T) {
	c := clusterOf(t, 5)
	for key, want := range map[string]string{"a": "21340", "b": "04123", "service/c": "03214"} {
		got := ""
		for _, m := range c.Candidates(xds.NewKey(key)) {
			got += m.Name[len("relay-"):]
		}
		if got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
}

func BenchmarkCandidates(b *testing.B) {
	c := clusterOf(b, 100)
	key := xds.NewKey("service", "1")
	b.ReportAllocs()
	for b.Loop() {
		c.Candidates(key)
	}
}
