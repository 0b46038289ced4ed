//go:build linux

package loadtest

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"xdsrelay/internal/xdstest"
)

func TestMain(m *testing.M) {
	if os.Getenv(serverVariable) != "" {
		os.Exit(m.Run()) // a server of a test, which is killed
	}
	os.Exit(xdstest.Main(m))
}

// bench is one measured case.
type bench struct {
	testing.TB
	name   string
	load   load
	rounds int
	small  bool // one round with few clients, whose numbers mean nothing
}

// loadCase is a load that is measured for docs/performance.
type loadCase struct {
	name string
	load load
	// times multiplies the rounds. Cases with goals need more precise results.
	times   int
	measure func(*bench)
}

var loadCases = []loadCase{
	{"sotw-1k", load{Clients: 2000, Bytes: 1000}, 3, measureRounds},
	{"sotw-10k", load{Clients: 2000, Bytes: 10_000}, 3, measureRounds},
	{"sotw-100k", load{Clients: 2000, Bytes: 100_000}, 3, measureRounds},
	{"sotw-1m", load{Clients: 500, Bytes: 1_000_000}, 1, measureRounds},
	{"delta-100", load{Clients: 2000, Bytes: 1000, Delta: true, Clusters: 100}, 1, measureRounds},
	{"delta-10k", load{Clients: 500, Bytes: 500, Delta: true, Clusters: 10_000}, 1, measureRounds},
	{"tls-10k", load{Clients: 2000, Bytes: 10_000, TLS: true}, 1, measureRounds},
	{"tls-100k", load{Clients: 2000, Bytes: 100_000, TLS: true}, 1, measureRounds},
	{"allocs", load{Clients: 2000, Bytes: 10_000}, 1, measureAllocs},
	{"held", load{Clients: 8000, Bytes: 400}, 1, measureHeld},
	{"eds-alike", eds(1000), 1, measureRounds},
	{"eds-apart", eds(1000).apart(), 1, measureRounds},
	{"eds-delta-alike", eds(1000).delta(), 1, measureRounds},
	{"eds-delta-apart", eds(1000).apart().delta(), 1, measureRounds},
	{"eds-unwanted", eds(10_000).delta(), 1, measureUnwanted},
	{"eds-disjoint", disjoint(2000), 1, measureBystanders},
	{"delta-owed", load{Clients: 50, Slow: 200, Bytes: 500, Delta: true, Clusters: 2000, Turns: true, Every: 30 * time.Millisecond}, 1, measureBystanders},
	{"keys-1", load{Clients: 2000, Bytes: 10_000, Keys: 1}, 1, measureRounds},
	{"keys-10", load{Clients: 2000, Bytes: 10_000, Keys: 10}, 1, measureRounds},
	{"keys-1000", load{Clients: 2000, Bytes: 10_000, Keys: 1000}, 1, measureRounds},
	{"scale", scale(10_000), 1, measureScale},
	{"scale-own", scale(10_000).ownKeys(), 1, measureScale},
	{"return-1", scale(1), 1, measureReturn},
	{"return", scale(10_000), 1, measureReturn},
	{"slow-100k", load{Clients: 1000, Slow: 1000, Bytes: 100_000, Changes: 300, Every: 200 * time.Millisecond}, 1, measureSlow},
	{"slow-1m", load{Clients: 1000, Slow: 1000, Bytes: 1_000_000, Changes: 20, Every: 2 * time.Second}, 1, measureSlow},
	{"store", load{Clients: 20, Bytes: 500, Delta: true, Clusters: 20_000, Changes: 120, Every: time.Second}, 1, measureStore},
	{"names", load{Clients: 1, Bytes: 200, Delta: true, Clusters: 20_000, Names: 20_000}, 1, measureNames},
	{"cold-1k", disjoint(1000), 1, measureColdStart},
	{"cold-2k", disjoint(2000), 1, measureColdStart},
	{"cold-4k", disjoint(4000), 1, measureColdStart},
	{"rules", load{Clients: 4000, Bytes: 1000}, 1, measureRules},
	{"arrive", load{Clients: 5000, Bytes: 100_000}, 1, measureArrive},
	{"arrive-1k", load{Clients: 5000, Bytes: 1000}, 1, measureArrive},
	{"idle-10", idle(10), 1, measureIdle},
	{"idle-10k", idle(10_000), 1, measureIdle},
	{"idle-tls-10", idle(10).secured(), 1, measureIdle},
	{"idle-tls-10k", idle(10_000).secured(), 1, measureIdle},
}

// clusterCases are the cases of replicas.
var clusterCases = []loadCase{
	{"replicas", load{Clients: 5000, Keys: 1000, Delta: true, Clusters: 10, Bytes: 1000, Streams: 10}, 1, measureReplicas},
	{"hop-1", load{Clients: 1, Bytes: 10_000}, 1, measureHop},
	{"hop-100", load{Clients: 100, Bytes: 10_000}, 1, measureHop},
	{"hop-1000", load{Clients: 1000, Bytes: 10_000}, 1, measureHop},
	{"follower", load{Clients: 2000, Delta: true, Clusters: 1, Bytes: 10_000, Streams: 100}, 1, measureFollower},
	{"move", load{Clients: 3000, Keys: 3000, Delta: true, Clusters: 10, Bytes: 1000, Streams: 100}, 1, measureMove},
	{"wide", load{Clients: 16_000, Bytes: 10_000, Streams: 4}, 1, measureWide},
	{"busy", load{Clients: 40_000, Keys: 1000, Delta: true, Clusters: 10, Names: 2, Asks: new(int), Bytes: 1000, Stamped: true, Streams: 10}, 1, measureBusy},
}

// eds is the load of clients that subscribe to 100 of 10,000 load assignments.
func eds(clients int) load {
	return load{Clients: clients, Bytes: 1000, Clusters: 10_000, Names: 100}
}

// disjoint is the load of clients that subscribe to ten load assignments of their own.
func disjoint(clients int) load {
	return load{Clients: clients, Bytes: 300, Clusters: 10 * clients, Names: 10, Asks: new(int)}
}

func (l load) apart() load   { l.Apart = true; return l }
func (l load) delta() load   { l.Delta = true; return l }
func (l load) secured() load { l.TLS = true; return l }

// small is the same load with a few clients.
func (l load) small() load {
	each := 0
	if l.Clusters > 0 {
		each = l.Bytes / l.Clusters
	}
	l.Clients, l.Slow, l.Changes, l.Every = min(l.Clients, 20), min(l.Slow, 4), min(l.Changes, 10), l.Every/10
	l.Keys, l.Clusters, l.Names, l.Streams = min(l.Keys, 7), min(l.Clusters, 60), min(l.Names, 5), min(l.Streams, 4)
	if l.Slim {
		l.Bytes = each * l.Clusters
	}
	return l
}

// alike are cases that with few clients do what another one does. They run only with BENCH.
var alike = []string{"sotw-10k", "sotw-100k", "sotw-1m", "delta-10k", "tls-100k", "eds-apart", "eds-delta-apart", "keys-1", "keys-10",
	"return-1", "slow-1m", "cold-2k", "cold-4k", "arrive-1k", "idle-10k", "idle-tls-10k", "hop-100", "hop-1000"}

// TestLoad measures. BENCH has the names of the cases to measure, with commas between, or "all" for
// loadCases, or "cluster" for clusterCases. ROUNDS is the number of rounds. Without BENCH one case
// of each kind is run once, with few clients.
func TestLoad(t *testing.T) {
	chosen, rounds := os.Getenv("BENCH"), 5
	if text := os.Getenv("ROUNDS"); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatalf("ROUNDS: %v", err)
		}
	}
	cases, names := slices.Concat(loadCases, clusterCases), strings.Split(chosen, ",")
	switch chosen {
	case "":
		cases = slices.DeleteFunc(cases, func(c loadCase) bool { return slices.Contains(alike, c.name) })
	case "all":
		cases = loadCases
	case "cluster":
		cases = clusterCases
	default:
		for _, name := range names {
			if !slices.ContainsFunc(cases, func(c loadCase) bool { return c.name == name }) {
				t.Errorf("BENCH: there is no case %q", name)
			}
		}
		cases = slices.DeleteFunc(cases, func(c loadCase) bool { return !slices.Contains(names, c.name) })
	}
	for _, c := range cases {
		b := &bench{name: c.name, load: c.load, rounds: c.times * rounds}
		if chosen == "" {
			b.load, b.rounds, b.small = c.load.small(), 1, true
		}
		t.Run(c.name, func(t *testing.T) {
			if b.small {
				t.Parallel()
			}
			b.TB = t
			c.measure(b)
		})
	}
}

// value is a measured number with its unit, as benchstat reads them.
type value struct {
	of   float64
	unit string
}

// print prints a line of a server.
func (b *bench) print(server string, values ...value) {
	b.Helper()
	line := fmt.Sprintf("BenchmarkLoad/case=%s/server=%s 1", b.name, server)
	for _, v := range values {
		if math.IsNaN(v.of) || math.IsInf(v.of, 0) {
			b.Errorf("%s: %s is %v", server, v.unit, v.of)
		}
		line += fmt.Sprintf(" %.6g %s", v.of, v.unit)
	}
	if b.small {
		b.Log(line)
	} else {
		fmt.Println(line)
	}
}
