package main

import (
	"flag"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/xdstest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "8") // tests wait for messages, not for a processor; the flag exists
	os.Exit(xdstest.Main(m))
}

// The owner of a key is killed, and a relay with its name joins later. Clients of the others keep their
// streams.
func TestOwnerIsKilledAndReplaced(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	e.reachesAll()
	killed := e.oneStreamPerKey()[keys[0]]
	var others []*member
	for _, m := range e.members {
		if m != killed {
			others = append(others, m)
		}
	}
	owned := keysOf(e.oneStreamPerKey(), killed)

	e.moveClients(killed, others[0])
	killed.Kill()
	e.reachesAll()
	e.oneStreamPerKey()
	e.start(killed, nil) // clients stay where they are
	e.seesMembers(killed, "alive", 3)
	// The same name owns the same keys.
	xdstest.Eventually(t, "the keys to move", func() error {
		owners, err := e.owners()
		if err != nil || keysOf(owners, killed) != owned {
			return xdstest.ErrNotYet
		}
		return nil
	})
	e.reachesAll()
	for _, m := range others {
		e.ended(m, 0)
	}
	e.ended(killed, 1)
}

// keysOf counts the keys that a member owns.
func keysOf(owners map[string]*member, m *member) (n int) {
	for _, o := range owners {
		if o == m {
			n++
		}
	}
	return n
}

// A member drains. Its clients' streams end once, and no other stream does.
func TestDrain(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	drained := e.oneStreamPerKey()[keys[0]]
	for i, m := range e.members {
		if m == drained {
			e.moveClients(m, e.members[(i+1)%3])
		}
		for _, c := range m.clients {
			c.moves()
		}
	}
	drained.Signal(syscall.SIGTERM)
	for exited := false; !exited; {
		e.reachesAll()
		select {
		case <-drained.Exited():
			exited = true
		default:
		}
	}
	if err := drained.Err(); err != nil {
		t.Errorf("the drained relay exited: %v", err)
	}
	e.oneStreamPerKey()
	for _, m := range e.members {
		if m == drained {
			e.ended(m, 1)
			continue
		}
		e.seesMembers(m, "left", 1)
		e.ended(m, 0)
	}
}

// The origin is away. Clients keep what they have, and new ones get it. No stream of a client ends.
func TestOriginIsAway(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	e.origin.Stop()
	xdstest.Eventually(t, "all members to know", func() error {
		for _, m := range e.members {
			list, err := xdstest.List[keyStatus](m.Relay, "/keys")
			if err != nil {
				return err
			}
			for _, k := range list {
				if k.Upstream.Connected {
					return xdstest.ErrNotYet
				}
			}
		}
		return nil
	})
	for i, m := range e.members {
		late := e.client(m.Address, "late-"+m.name, keys[i], fleet.Variant(i%2))
		late.has(t, xdstest.Web(e.version)...)
		m.clients = append(m.clients, late)
	}
	e.change()
	e.origin.Start()
	e.haveAll()
	e.oneStreamPerKey()
	for _, m := range e.members {
		e.ended(m, 0)
	}
}

// The members get other rules one after another. The rules give the same keys, so no stream ends.
func TestRollingChangeOfRules(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	for i, m := range e.members {
		tlstest.File(t, e.dir, m.name+".yaml", e.config(m).With(xdstest.Config{"aggregation.rules": rules(2)}).Text())
		m.Relay.WaitLog(t, 1, "configuration reloaded", "aggregation.rules")
		e.reachesAll()
		if i < 2 { // until the last has changed, those that have are a cluster of their own
			e.seesMembers(m, "alive", i+1)
			e.seesMembers(m, "unusable", 2-i)
		}
	}
	for _, m := range e.members {
		e.seesMembers(m, "alive", 3)
	}
	e.oneStreamPerKey()
	e.reachesAll()
	for _, m := range e.members {
		e.ended(m, 0)
	}
}

// The gossip key, the CA and the members' certificates are replaced as docs/cluster.md says, member by
// member. No client notices, and a member that starts afterwards has only the new ones.
func TestRotation(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	oldKey, newKey := e.keys, gossipKey()
	oldCA, next := e.ca, tlstest.NewAuthority(t)
	reloaded := func(m *member, line string, times int) {
		m.WaitLog(t, times, line)
		e.reachesAll()
	}
	for i, keys := range [][]byte{slices.Concat(oldKey, newKey), slices.Concat(newKey, oldKey), newKey} {
		for _, m := range e.members {
			e.writeKeys(m.name, keys)
			reloaded(m, "gossip keys reloaded", i+1)
		}
	}
	for i, change := range []func(*member){
		func(m *member) { e.writeCA(m.name, slices.Concat(oldCA, next.PEM())) },
		func(m *member) { next.Pair(t, tlstest.URI("spiffe://demo/relay")).Write(t, e.dir, m.name) },
		func(m *member) { e.writeCA(m.name, next.PEM()) },
	} {
		for _, m := range e.members {
			change(m)
			reloaded(m, "certificates reloaded", i+1)
		}
	}
	e.oneStreamPerKey()
	e.keys, e.ca, e.authority = newKey, next.PEM(), next
	back := e.members[0]
	e.moveClients(back, e.members[1])
	back.Stop()
	e.oneStreamPerKey() // the others' new streams are on connections with new certificates
	e.start(back, nil)
	e.seesMembers(back, "alive", 3)
	e.oneStreamPerKey()
	e.reachesAll()
	for i, m := range e.members {
		e.ended(m, map[int]int{0: 1}[i]) // of the clients of the one that was restarted
		for _, text := range []string{"cannot gossip", "member is unusable", "TLS handshake failed"} {
			if strings.Contains(m.Log(), text) {
				t.Errorf("%s logs %q:\n%s", m.name, text, m.Tail(60))
			}
		}
	}
}
