package integration

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// The model tests: after any history, every client has what a client of the origin itself has.

// 200 clients on 4 keys: the origin sees 4 streams.
func TestP60_ModelOfAFleet(t *testing.T) {
	eachOrigin(t, func(t *testing.T, upstream, kind string) {
		runModel(t, fleetModel{sotw: upstream == "sotw", snapshots: kind == xdstest.Snapshot}, 200, 500, func(origin string) (atOrigin, atClients *relay) {
			r := serve(t, origin, xdstest.Config{"upstream.variant": upstream})
			return r, r
		})
	})
}

// A relay in front of a relay gives the same result, whichever variants they use.
func TestP60_ModelOfTwoTiers(t *testing.T) {
	for _, outer := range upstreams {
		for _, inner := range upstreams {
			t.Run(outer+"/"+inner, func(t *testing.T) {
				t.Parallel()
				runModel(t, fleetModel{sotw: outer == "sotw" || inner == "sotw"}, 60, 200, func(origin string) (atOrigin, atClients *relay) {
					core := serve(t, origin, xdstest.Config{"upstream.variant": inner})
					return core, serve(t, core.Address, xdstest.Config{"upstream.variant": outer})
				})
			})
		}
	}
}

// modelTypes are the types of the model. A key has each either by the wildcard or by name.
var modelTypes = []string{resource.ClusterType, resource.EndpointType, resource.ListenerType, resource.RouteType}

// fullState: in SotW absence is a removal. It is repeated here because the relay's own table is
// under test.
var fullState = map[string]bool{resource.ClusterType: true, resource.ListenerType: true}

const modelNames = 12

type fleetModel struct {
	sotw bool // SotW is used somewhere upstream
	// snapshots: the origin uses snapshot caches. In SotW these treat "*" as a name that they do
	// not have, and only know the legacy wildcard. Types without a legacy wildcard (P21) are not
	// available by wildcard.
	snapshots bool

	t       *testing.T
	seed    uint64
	rng     *rand.Rand
	o       *xdstest.Origin
	keys    []*modelKey
	clients []*modelClient
	steady  []*modelClient // those that reject nothing
	n       int            // makes the next resource differ
}

type modelKey struct {
	name string
	wild map[string]bool
}

type modelClient struct {
	*fleet.Client
	key  *modelKey
	subs map[string]map[string]bool // of the types by name; nil: it follows references
}

func seedOf(t *testing.T) uint64 {
	if s := os.Getenv("RELAY_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("RELAY_SEED: %v", err)
		}
		return seed
	}
	return uint64(time.Now().UnixNano())
}

func runModel(t *testing.T, m fleetModel, clients, steps int, front func(origin string) (atOrigin, atClients *relay)) {
	kind := xdstest.Linear
	if m.snapshots {
		kind = xdstest.Snapshot
	}
	m.t, m.seed, m.o = t, seedOf(t), origin(t, kind)
	m.rng = rand.New(rand.NewPCG(m.seed, 1))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("RELAY_SEED=%d", m.seed)
		}
	})
	for i, wild := range [][]string{
		{resource.ClusterType, resource.ListenerType}, // as Envoys subscribe
		modelTypes,
		nil, // as gRPC subscribes
		{resource.EndpointType, resource.RouteType},
	} {
		k := &modelKey{name: fmt.Sprint("key-", i), wild: make(map[string]bool)}
		for _, typ := range wild {
			k.wild[typ] = fullState[typ] || !m.sotw || !m.snapshots
		}
		m.keys = append(m.keys, k)
		m.o.Put(k.name, m.some(8)...)
	}
	atOrigin, atClients := front(m.o.Address)
	target := atClients.Address
	for i := range clients {
		m.join(target, i)
	}
	for i := range steps {
		m.step()
		if i%4 == 0 {
			c := m.steady[m.rng.IntN(len(m.steady))]
			m.converge(c, fmt.Sprintf("step %d", i), m.truth(c.key))
		}
	}
	m.finish(atOrigin)
}

// some returns resources of random types and names.
func (m *fleetModel) some(n int) []types.Resource {
	var out []types.Resource
	taken := make(map[string]bool)
	for range n {
		typ, name := m.pick()
		if !taken[string(typ)+name] {
			taken[string(typ)+name] = true
			m.n++
			out = append(out, xdstest.ByType[typ](name, m.n))
		}
	}
	return out
}

func (m *fleetModel) pick() (string, string) {
	return modelTypes[m.rng.IntN(len(modelTypes))], m.name()
}

func (m *fleetModel) name() string { return fmt.Sprint("r", m.rng.IntN(modelNames)) }

// join starts client i, of key i%4, in each variant. Of the first key every third client is an
// Envoy. Every fourth client rejects some responses.
func (m *fleetModel) join(target string, i int) {
	k := m.keys[i%len(m.keys)]
	round := i / len(m.keys)
	c := &modelClient{key: k}
	cfg := fleet.ClientConfig{
		Node: node(fmt.Sprint("client-", i), k.name), Variant: variants[round%2],
		// The model removes load assignments of existing clusters. Another test covers ACKs that
		// wait for them.
		AckCold: true,
		// Under the wildcard the relay's SotW responses hold everything.
		WildcardIsFull: true,
	}
	if i%len(m.keys) != 0 || round%3 != 0 {
		cfg.Behaviour = fleet.Raw
		c.subs = make(map[string]map[string]bool)
		for _, typ := range modelTypes {
			s := fleet.Subscription{Type: xds.TypeURL(typ), Names: []string{"*"}}
			if !k.wild[typ] {
				c.subs[typ] = map[string]bool{m.name(): true, m.name(): true, m.name(): true}
				s.Names = slices.Sorted(maps.Keys(c.subs[typ]))
			} else if fullState[typ] && m.rng.IntN(2) == 0 {
				s.Names = nil // the legacy wildcard
			}
			cfg.Subscribe = append(cfg.Subscribe, s)
		}
	}
	nacks := round%4 == 3
	if nacks {
		rng := rand.New(rand.NewPCG(m.seed, uint64(i)+2)) // used by the reader only
		cfg.Nack = func(_ xds.TypeURL, rs []fleet.Resource) error {
			// Not only removals: by P15, a rejected response without resources is not resent before
			// something else changes.
			if len(rs) > 0 && rng.IntN(3) == 0 {
				return errors.New("a random NACK")
			}
			return nil
		}
	}
	c.Client = client(m.t, target, cfg)
	m.clients = append(m.clients, c)
	if !nacks {
		m.steady = append(m.steady, c)
	}
}

// step changes something at the origin or at a client.
func (m *fleetModel) step() {
	k := m.keys[m.rng.IntN(len(m.keys))]
	switch p := m.rng.IntN(100); {
	case p < 50:
		m.o.Put(k.name, m.some(1+m.rng.IntN(3))...)
	case p < 65:
		typ, name := m.pick()
		m.o.Remove(k.name, typ, name, m.name())
	case p < 75: // both at once: removed and restored between two sends
		put := m.some(2)
		gone := make(map[string][]string)
		if typ, name := m.pick(); !slices.ContainsFunc(put, func(r types.Resource) bool {
			t, n := xdstest.NameOf(r)
			return t == typ && n == name
		}) {
			gone[typ] = []string{name}
		}
		m.o.Change(k.name, put, gone)
	case p < 95:
		m.resubscribe(m.clients[m.rng.IntN(len(m.clients))])
	default:
		c := m.clients[m.rng.IntN(len(m.clients))]
		memories := []fleet.Memory{fleet.KeepVersions, fleet.Forget}
		if c.Variant() == fleet.SotW {
			// In delta, no server reports removals to a client that keeps resources without listing
			// them (P27).
			memories = append(memories, fleet.DropVersions)
		}
		c.Reconnect(memories[m.rng.IntN(len(memories))])
	}
}

// resubscribe changes the names that a client subscribes to.
func (m *fleetModel) resubscribe(c *modelClient) {
	typ := modelTypes[m.rng.IntN(len(modelTypes))]
	names := c.subs[typ]
	if names == nil {
		return
	}
	name := m.name()
	switch m.rng.IntN(4) {
	case 0, 1:
		names[name] = true
		c.Subscribe(xds.TypeURL(typ), name) // perhaps again
	case 2:
		delete(names, name)
		c.Unsubscribe(xds.TypeURL(typ), name) // perhaps one that is not subscribed
	default:
		clear(names)
		for range 1 + m.rng.IntN(4) {
			names[m.name()] = true
		}
		c.SetNames(xds.TypeURL(typ), slices.Sorted(maps.Keys(names))...)
	}
}

// truth is the origin's content for a key: bodies by type and name.
type truth map[string]map[string][]byte

func (m *fleetModel) truth(k *modelKey) truth {
	out := make(truth)
	for _, typ := range modelTypes {
		out[typ] = make(map[string][]byte)
		for name, r := range m.o.Resources(k.name, typ) {
			out[typ][name] = marshal(r)
		}
	}
	return out
}

// converge waits until a client holds what it should.
func (m *fleetModel) converge(c *modelClient, when string, want truth) {
	m.t.Helper()
	if err := c.Wait(xdstest.Context(m.t), func(*fleet.Client) bool { return m.differs(c, want) == nil }); err != nil {
		m.t.Fatalf("seed %d: %s: %s: %v (%v)", m.seed, when, c.key.name, m.differs(c, want), err)
	}
}

// differs describes how a client differs from what it should hold.
func (m *fleetModel) differs(c *modelClient, want truth) error {
	for _, typ := range modelTypes {
		held := c.Held(xds.TypeURL(typ))
		asked, wild := c.Names(xds.TypeURL(typ))
		for name, body := range want[typ] {
			r, ok := held[name]
			switch {
			case !wild && !slices.Contains(asked, name):
				if ok {
					return fmt.Errorf("%s %s is held and not subscribed", typ, name)
				}
			case typ == resource.EndpointType && m.sotw && !wild && want[resource.ClusterType][name] == nil:
				// P52: a SotW origin is not asked for the endpoints of a cluster that it removed.
			case !ok:
				return fmt.Errorf("%s %s is missing", typ, name)
			case !bytes.Equal(r.Body, body):
				return fmt.Errorf("%s %s is an old one", typ, name)
			}
		}
		// P60: if SotW is used on the way, resources of types that are not full-state may remain.
		// Under the wildcard the relay's SotW is full-state.
		if !fullState[typ] && (m.sotw || c.Variant() == fleet.SotW && !wild) {
			continue
		}
		for name := range held {
			if want[typ][name] == nil {
				return fmt.Errorf("%s %s is held and was removed", typ, name)
			}
		}
	}
	return nil
}

// finish makes every client accept what it rejected, and compares all with clients of the origin.
func (m *fleetModel) finish(atOrigin *relay) {
	for _, c := range m.clients {
		c.SetNack(nil)
	}
	// All resources of rejected responses change once more (P15).
	for _, k := range m.keys {
		var again []types.Resource
		for _, typ := range modelTypes {
			for name := range m.o.Resources(k.name, typ) {
				m.n++
				again = append(again, xdstest.ByType[typ](name, m.n))
			}
		}
		m.o.Put(k.name, again...)
	}
	for _, c := range m.steady {
		m.converge(c, "at the end", m.truth(c.key))
	}
	// So do removed ones. But if everything in the rejected response was unsubscribed since, its
	// removals are not sent again.
	gone := make(map[*modelKey]map[string][]string)
	for _, k := range m.keys {
		gone[k] = make(map[string][]string)
		var back []types.Resource
		for _, typ := range modelTypes {
			has := m.o.Resources(k.name, typ)
			for _, name := range names("r", modelNames) {
				if has[name] == nil {
					m.n++
					back = append(back, xdstest.ByType[typ](name, m.n))
					gone[k][typ] = append(gone[k][typ], name)
				}
			}
		}
		m.o.Put(k.name, back...)
	}
	for _, c := range m.clients {
		m.converge(c, "with all that was removed", m.truth(c.key))
	}
	for _, k := range m.keys {
		m.o.Change(k.name, nil, gone[k])
	}
	for _, c := range m.clients {
		m.converge(c, "without it again", m.truth(c.key))
	}
	// A SotW stream is replaced if a name that was answered before is wanted again and gets no answer,
	// which is so for a name that the origin removed meanwhile (P64). The relay logs that.
	want := len(m.keys) + strings.Count(atOrigin.Log(), "upstream stream is replaced")
	if open, ever := m.o.Streams(); open != len(m.keys) || ever != want {
		m.t.Errorf("seed %d: the origin has %d streams and had %d, want %d and %d", m.seed, open, ever, len(m.keys), want)
	}
	for _, k := range m.keys {
		for _, v := range variants {
			direct := m.direct(k, v)
			for _, c := range m.clients {
				if c.key == k && c.Variant() == v {
					m.converge(c, "against a client of the origin", direct)
				}
			}
		}
	}
	var nacks uint64
	for _, c := range m.clients {
		nacks += c.Counters().Nacks
	}
	if nacks == 0 {
		m.t.Errorf("seed %d: no response was rejected", m.seed)
	}
}

// direct returns what a client of the origin itself has.
func (m *fleetModel) direct(k *modelKey, v fleet.Variant) truth {
	cfg := fleet.ClientConfig{Node: node("direct-"+v.String(), k.name), Variant: v, Behaviour: fleet.Raw}
	for _, typ := range modelTypes {
		s := fleet.Subscription{Type: xds.TypeURL(typ), Names: []string{"*"}}
		switch legacy := m.snapshots && v == fleet.SotW; {
		case !k.wild[typ] || legacy && !fullState[typ]:
			s.Names = names("r", modelNames) // all names
		case legacy:
			s.Names = nil
		}
		cfg.Subscribe = append(cfg.Subscribe, s)
	}
	c := &modelClient{Client: client(m.t, m.o.Address, cfg), key: k}
	m.converge(c, "a client of the origin", m.truth(k))
	out := make(truth)
	for _, typ := range modelTypes {
		out[typ] = make(map[string][]byte)
		for name, r := range c.Held(xds.TypeURL(typ)) {
			out[typ][name] = r.Body
		}
	}
	return out
}
