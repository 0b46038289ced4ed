package fanout

import (
	"cmp"
	"iter"
	"slices"
)

// Move is what other rules would make of a client.
type Move struct {
	Stream   uint64 // as in ClientStatus
	Node     string
	Peer     string
	Identity string // that its certificate proves
	// Changes are the types that would have other keys; none: it would stay.
	Changes []Change
}

// Moves holds all clients, by the numbers of their streams from the one after on,
// against rules that are not in force: what Rekey would do, were they. Clients are
// evaluated one by one, as they are asked for, and no lock is held meanwhile.
func (s *Server) Moves(after uint64, keyOf KeyOf) iter.Seq[Move] {
	type client struct {
		number uint64
		move   func() Move
	}
	var all []client
	for _, st := range s.all() {
		if st.id > after && st.refusal.Load() == nil {
			all = append(all, client{st.id, func() Move { return st.move(keyOf) }})
		}
	}
	for _, p := range s.pollers.all() {
		if p.id > after && p.refusal.Load() == nil {
			all = append(all, client{p.id, func() Move { return p.move(keyOf) }})
		}
	}
	slices.SortFunc(all, func(a, b client) int { return cmp.Compare(a.number, b.number) })
	return func(yield func(Move) bool) {
		for _, c := range all {
			if !yield(c.move()) {
				return
			}
		}
	}
}

func (st *stream) move(keyOf KeyOf) Move {
	m := Move{Stream: st.id, Node: st.NodeID(), Peer: st.from}
	if st.caller.Verified() {
		m.Identity = st.caller.Account
	}
	m.Changes, _ = st.changes(keyOf)
	return m
}

func (p *poller) move(keyOf KeyOf) Move {
	m := Move{Stream: p.id, Node: p.node.ID, Peer: p.address}
	if c := p.change(keyOf); c.From != c.To {
		m.Changes = []Change{c}
	}
	return m
}
