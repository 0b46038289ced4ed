package overview

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"xdsrelay/internal/admin/keystatus"
	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// client is a stream whose types are in these states, all under one key.
func client(key, variant string, states ...string) inspect.ClientStatus {
	types := []xds.TypeURL{xds.ClusterType, xds.RouteType, xds.EndpointType}
	c := inspect.ClientStatus{Variant: variant}
	for i, s := range states {
		c.Types = append(c.Types, inspect.TypeStatus{Type: string(types[i]), Key: key, State: s})
	}
	return c
}

func key(name, origin string, connected bool) keystatus.Key {
	return keystatus.Key{Key: name, Members: 1, Upstream: keystatus.Upstream{Origin: origin, Connected: connected}}
}

func TestClientCountsByItsWorstType(t *testing.T) {
	o := Of(&In{
		Clients: slices.Values([]inspect.ClientStatus{
			client("a", "sotw", inspect.StateSynced, inspect.StateSynced),
			client("a", "sotw", inspect.StateSynced, inspect.StateNacked, inspect.StateStale),
			client("a", "delta", inspect.StateStale, inspect.StateNotSent),
			client("b", "delta", inspect.StateNotSent, inspect.StateUnconfirmed),
			client("b", "rest"),
		}),
		Keys: []keystatus.Key{key("a", "one", true), key("b", "one", false)},
	})
	if want := (States{Synced: 1, Nacked: 1, Stale: 1, NotSent: 2}); o.States != want || o.Clients != 5 {
		t.Errorf("states are %+v, want %+v", o.States, want)
	}
	if want := (Variants{SotW: 2, Delta: 2, REST: 1}); o.Variants != want {
		t.Errorf("variants are %+v, want %+v", o.Variants, want)
	}
	if o.Keys != 2 || o.Disconnected != 1 {
		t.Errorf("%d keys, %d disconnected", o.Keys, o.Disconnected)
	}
	a := o.Top[0]
	if want := (States{Synced: 1, Nacked: 1, Stale: 1}); a.Key != "a" || a.Clients != 3 || a.States != want || a.Origin != "one" || !a.Connected {
		t.Errorf("a is %+v", a)
	}
	// A client without requests has no key.
	if none, b := o.Top[1], o.Top[2]; b.Key != "b" || b.States != (States{NotSent: 1}) || none.Key != "" || none.States != (States{NotSent: 1}) {
		t.Errorf("then come %+v", o.Top[1:])
	}
	var types []string
	for _, r := range o.Types {
		types = append(types, fmt.Sprintf("%s %+v", r.Type, r.States))
	}
	want := "CDS {Synced:2 Stale:1 Unconfirmed:0 NotSent:1 Nacked:0}; EDS {Synced:0 Stale:1 Unconfirmed:0 NotSent:0 Nacked:0}; RDS {Synced:1 Stale:0 Unconfirmed:1 NotSent:1 Nacked:1}"
	if got := strings.Join(types, "; "); got != want {
		t.Errorf("types are %s, want %s", got, want)
	}
}

func TestClientOfSeveralKeysCountsWithEach(t *testing.T) {
	c := client("a", "delta", inspect.StateSynced, inspect.StateNacked, inspect.StateSynced)
	c.Types[1].Key, c.Types[2].Key = "b", "b"
	o := Of(&In{Clients: slices.Values([]inspect.ClientStatus{c})})
	if len(o.Top) != 2 || o.Top[0].States != (States{Synced: 1}) || o.Top[1].States != (States{Nacked: 1}) || o.States != (States{Nacked: 1}) {
		t.Errorf("%+v", o)
	}
}

// For any number of keys with names of any length: the rows are few, those with refusals are among
// them, and all clients are counted.
func TestRowsAreFew(t *testing.T) {
	var in In
	var clients []inspect.ClientStatus
	for i := range 100 {
		name := fmt.Sprintf("key-%03d", i)
		in.Keys = append(in.Keys, key(name, "one", true))
		for range 100 - i {
			clients = append(clients, client(name, "sotw", inspect.StateSynced))
		}
	}
	clients = append(clients, client("key-099", "sotw", inspect.StateNacked))
	long := strings.Repeat("é", 100_000)
	for range 200 {
		clients = append(clients, client(long, "sotw", inspect.StateSynced))
	}
	for i := range 1000 { // types that clients invent
		clients[0].Types = append(clients[0].Types, inspect.TypeStatus{Type: fmt.Sprint("made/up", i), Key: "key-000", State: inspect.StateSynced})
	}
	in.Clients = slices.Values(clients)
	o := Of(&in)
	if len(o.Top) != maxKeys || o.Rest == nil || o.Rest.Keys != 101-maxKeys {
		t.Fatalf("%d rows and %+v", len(o.Top), o.Rest)
	}
	sum, refuses := o.Rest.Clients, false
	for i, r := range o.Top {
		sum += r.Clients
		refuses = refuses || r.Key == "key-099" && r.States.Nacked == 1
		if i > 0 && r.Clients > o.Top[i-1].Clients {
			t.Errorf("row %d has more clients than the one before", i)
		}
	}
	if sum != len(clients) || !refuses {
		t.Errorf("the rows have %d of %d clients; the one that refuses is there: %v", sum, len(clients), refuses)
	}
	if k := o.Top[0]; !k.Cut || len(k.Key) > maxText || k.Clients != 200 {
		t.Errorf("the long key is %d bytes", len(k.Key))
	}
	if last := o.Types[len(o.Types)-1]; len(o.Types) != 2 || last.Type != "other" || last.States.Synced != 1000 {
		t.Errorf("types: %+v", o.Types)
	}
	b, err := json.Marshal(o)
	if err != nil || len(b) > 16<<10 {
		t.Errorf("an event has %d bytes: %v", len(b), err)
	}
}

func TestOtherKeysHaveTheOriginOfAll(t *testing.T) {
	in := In{Clients: slices.Values([]inspect.ClientStatus(nil))}
	for i := range maxKeys + 2 {
		in.Keys = append(in.Keys, key(fmt.Sprintf("key-%03d", i), "one", true))
	}
	if o := Of(&in); o.Rest.Origin != "one" || !o.Rest.Connected {
		t.Errorf("%+v", o.Rest)
	}
	in.Keys[maxKeys+1].Upstream = keystatus.Upstream{Origin: "two"}
	if o := Of(&in); o.Rest.Origin != "" || o.Rest.Connected {
		t.Errorf("%+v", o.Rest)
	}
}

// An event says of an origin only what stays equal while nothing changes. The caller's origins stay as
// they are.
func TestOriginsHaveNoNumbersOfAttempts(t *testing.T) {
	away := upstream.OriginStatus{Name: "one", Away: true, Reconnects: 3, LastError: strings.Repeat("x", maxText+1), LastErrorAt: time.Now(), Faults: []string{"x"}}
	in := In{Clients: slices.Values([]inspect.ClientStatus(nil)), Origins: []upstream.OriginStatus{away}}
	b := xdstest.Must(json.Marshal(Of(&in).Origins))(t)
	if want := `[{"name":"one","address":"","away":true,"streams":0,"connections":0,"silent_streams":0,"last_error":"` + away.LastError[1:] + `"}]`; string(b) != want {
		t.Errorf("%s, want %s", b, want)
	}
	if !reflect.DeepEqual(in.Origins[0], away) {
		t.Errorf("the caller has %+v", in.Origins[0])
	}
}

// crowd is a large fleet.
func crowd(clients, keys int) *In {
	in := &In{Relay: Relay{Name: "relay"}, Origins: []upstream.OriginStatus{{Name: "one"}}}
	now := time.Now()
	for i := range keys {
		k := key(fmt.Sprintf("edge/zone-%03d", i), "one", true)
		k.Types = []keystatus.TypeSummary{{Type: string(xds.ClusterType), Received: now}}
		in.Keys = append(in.Keys, k)
	}
	var all []inspect.ClientStatus
	for i := range clients {
		state := inspect.StateSynced
		if i%100 == 0 {
			state = inspect.StateStale
		}
		all = append(all, client(in.Keys[i%keys].Key, "delta", inspect.StateSynced, state, inspect.StateSynced))
	}
	in.Clients = slices.Values(all)
	return in
}

// Encodes an event of 20,000 clients under 100 keys.
func BenchmarkEvent(b *testing.B) {
	in := crowd(20_000, 100)
	b.ReportAllocs()
	size := 0
	for b.Loop() {
		out, err := json.Marshal(Of(in))
		if err != nil {
			b.Fatal(err)
		}
		size = len(out)
	}
	b.ReportMetric(float64(size), "bytes/event")
}

func TestSamplesOfFifteenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		began := time.Now()
		s := NewSampler(func() Numbers {
			n := int(time.Since(began) / time.Second)
			return Numbers{Clients: n, States: States{Synced: n}, Totals: Totals{Responses: int64(3 * n), Acks: int64(2 * n), Nacks: int64(n)}}
		})
		go s.Run(ctx)
		if got := s.Samples(); got == nil || len(got) != 0 {
			t.Errorf("at the start: %v", got)
		}
		time.Sleep(25 * time.Second)
		want := []Sample{
			{At: began.Add(10 * time.Second), Clients: 10, States: States{Synced: 10}, Responses: 3, Acks: 2, Nacks: 1},
			{At: began.Add(20 * time.Second), Clients: 20, States: States{Synced: 20}, Responses: 3, Acks: 2, Nacks: 1},
		}
		if got := s.Samples(); len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
			t.Errorf("%+v, want %+v", got, want)
		}
		time.Sleep(time.Hour)
		got := s.Samples()
		if len(got) != maxSamples || got[len(got)-1].At.Sub(got[0].At) != 15*time.Minute-sampleEvery {
			t.Errorf("%d samples from %v", len(got), got[0].At)
		}
		if age := time.Since(got[len(got)-1].At); age > sampleEvery {
			t.Errorf("the newest is %s old", age)
		}
		stop()
		synctest.Wait()
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
