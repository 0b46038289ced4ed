package orchestrator

import (
	"container/list"
	"hash/maphash"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"xdsrelay/internal/fanout"
	"xdsrelay/internal/xds"
)

// What is kept of NACKs is bounded by key: so many different ones (by type,
// version and message; the one seen longest ago goes first), of each so many
// bytes of text and so many clients; and over all keys, in bytes, where the one of all
// that was seen longest ago goes first. Numbers are counted on.
const (
	allNackBytes   = 16 << 20
	maxNacks       = 128
	maxNackMessage = 1024
	maxNackName    = 256 // of a node's id, of a version, and of a type
	maxNackClients = 10  // by name, those that refused last
	maxNackCounted = 128 // clients that are told apart
)

// NackStatus is what was refused and why, with who did so (P17).
type NackStatus struct {
	Type    string    `json:"type"`
	Version string    `json:"version"`
	Code    int32     `json:"code"`
	Message string    `json:"message"`
	Count   uint64    `json:"count"`
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
	// Clients are those that said so last, the newest first, and ClientsTotal is how
	// many did; or more than that, if ClientsAtLeast.
	Clients        []NackClient `json:"clients"`
	ClientsTotal   int          `json:"clients_total"`
	ClientsAtLeast bool         `json:"clients_at_least,omitempty"`
	// StillRefusing is how many clients' streams, and who polls, refuse it now: of all
	// that said so, those that have not taken anything in its place.
	StillRefusing int `json:"still_refusing"`
}

// NackClient is a node that refused something.
type NackClient struct {
	Node  string    `json:"node"`
	Count uint64    `json:"count"`
	Last  time.Time `json:"last"`
}

// nacks are those of one key, the one seen longest ago first. They are safe for
// concurrent use; receivers call note.
type nacks struct {
	key xds.Key
	in  *nackRows // of all keys

	mu     sync.Mutex // before that of all
	total  uint64
	kept   []*nackRow
	closed bool
}

type nackRow struct {
	of *nacks
	NackStatus
	seen map[uint64]struct{} // hashes of nodes' ids

	// Under the lock of all rows.
	at   *list.Element // nil: it is not among them, or not any more
	seq  uint64
	cost int64
}

// nackRows are the rows of all keys.
type nackRows struct {
	max     int64
	dropped func(int) // counts what had to go for want of room

	mu    sync.Mutex
	order list.List // of *nackRow, the one seen longest ago first
	seq   uint64    // of the last that was seen
	bytes int64
}

// What a row takes beside its texts, each client in it, and each that is told apart, in
// bytes, about.
const (
	nackCost        = 512
	nackClientCost  = 64
	nackCountedCost = 40
)

// size is what the row keeps, in bytes. Under its key's lock.
func (s *nackRow) size() int64 {
	n := nackCost + len(s.Type) + len(s.Version) + len(s.Message) + nackCountedCost*len(s.seen)
	for i := range s.Clients {
		n += nackClientCost + len(s.Clients[i].Node)
	}
	return int64(n)
}

// use notes that a row was seen now, and returns those that have to go for it: they
// are among all no more, and are to be dropped by their keys. Under the row's key's
// lock.
func (a *nackRows) use(s *nackRow) (out []*nackRow) {
	cost := s.size()
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.at == nil {
		s.at = a.order.PushBack(s)
	} else {
		a.order.MoveToBack(s.at)
	}
	a.seq++
	a.bytes += cost - s.cost
	s.seq, s.cost = a.seq, cost
	for a.bytes > a.max && a.order.Len() > 1 {
		oldest := a.order.Front().Value.(*nackRow)
		a.take(oldest)
		out = append(out, oldest)
	}
	return out
}

// forget takes a row out.
func (a *nackRows) forget(s *nackRow) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.at != nil {
		a.take(s)
	}
}

// take is forget under the lock.
func (a *nackRows) take(s *nackRow) {
	a.order.Remove(s.at)
	a.bytes -= s.cost
	s.at, s.cost = nil, 0
}

// has reports whether the row is among all.
func (a *nackRows) has(s *nackRow) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return s.at != nil
}

var nackSeed = maphash.MakeSeed()

func (k *nacks) note(typ xds.TypeURL, n fanout.Nack, now time.Time) {
	url, version, node := clip(string(typ), maxNackName), clip(n.Version, maxNackName), clip(n.Node, maxNackName)
	message, hash := clip(n.Message, maxNackMessage), maphash.String(nackSeed, n.Node)
	k.mu.Lock()
	k.total++
	if k.closed {
		k.mu.Unlock()
		return
	}
	dropped := 0
	at := slices.IndexFunc(k.kept, func(s *nackRow) bool {
		return s.Type == url && s.Version == version && s.Message == message
	})
	var s *nackRow
	switch {
	case at >= 0:
		s = k.kept[at]
		k.kept = slices.Delete(k.kept, at, at+1)
	case len(k.kept) == maxNacks:
		k.in.forget(k.kept[0])
		k.kept = slices.Delete(k.kept, 0, 1)
		dropped++
		fallthrough
	default:
		s = &nackRow{of: k, NackStatus: NackStatus{Type: url, Version: version, Message: message, First: now}, seen: make(map[uint64]struct{})}
	}
	s.Code, s.Last = n.Code, now
	s.Count++
	s.said(node, hash, now)
	k.kept = append(k.kept, s)
	out := k.in.use(s)
	k.mu.Unlock()
	for _, o := range out {
		o.of.drop(o)
	}
	if dropped += len(out); dropped > 0 {
		k.in.dropped(dropped)
	}
}

// drop lets go of a row that is not among all any more, unless it was seen since.
func (k *nacks) drop(s *nackRow) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.in.has(s) {
		k.kept = slices.DeleteFunc(k.kept, func(o *nackRow) bool { return o == s })
	}
}

// close lets go of all, and keeps nothing from now on.
func (k *nacks) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.kept {
		k.in.forget(s)
	}
	k.kept, k.closed = nil, true
}

// said notes who said so.
func (s *nackRow) said(node string, hash uint64, now time.Time) {
	if _, known := s.seen[hash]; !known {
		if len(s.seen) < maxNackCounted {
			s.seen[hash] = struct{}{}
		} else {
			s.ClientsAtLeast = true
		}
	}
	s.ClientsTotal = len(s.seen)
	c := NackClient{Node: node}
	if i := slices.IndexFunc(s.Clients, func(c NackClient) bool { return c.Node == node }); i >= 0 {
		c = s.Clients[i]
		s.Clients = slices.Delete(s.Clients, i, i+1)
	} else if len(s.Clients) == maxNackClients {
		s.Clients = s.Clients[:maxNackClients-1]
	}
	c.Count++
	c.Last = now
	s.Clients = slices.Insert(s.Clients, 0, c)
}

// count returns how many there were.
func (k *nacks) count() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.total
}

// all returns how many there were, and what is kept, the newest first.
func (k *nacks) all() (uint64, []NackStatus) {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make([]NackStatus, 0, len(k.kept))
	for _, s := range slices.Backward(k.kept) {
		out = append(out, s.copied())
	}
	return k.total, out
}

// copied is the row as it is now. Under its key's lock.
func (s *nackRow) copied() NackStatus {
	row := s.NackStatus
	row.Clients = slices.Clone(row.Clients)
	return row
}

// KeyNack is a row of all keys'.
type KeyNack struct {
	Key xds.Key
	// Place counts how often anything was refused, up to when this was the last time.
	Place uint64
	NackStatus
}

// Nacks yields what is kept of all keys, the newest first, from those that were refused
// before the place on; 0: from the newest. Each is read when it is asked for: what was
// refused again meanwhile is among the newest, and not where it was.
func (r *Registry) Nacks(before uint64) iter.Seq[KeyNack] {
	return func(yield func(KeyNack) bool) {
		for _, at := range r.past.nacks.rows(before) {
			k := at.row.of
			k.mu.Lock()
			n := KeyNack{Key: k.key, Place: at.seq, NackStatus: at.row.copied()}
			k.mu.Unlock()
			if !yield(n) {
				return
			}
		}
	}
}

// placed is a row where it was.
type placed struct {
	row *nackRow
	seq uint64
}

func (a *nackRows) rows(before uint64) (out []placed) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for e := a.order.Back(); e != nil; e = e.Prev() {
		if s := e.Value.(*nackRow); before == 0 || s.seq < before {
			out = append(out, placed{s, s.seq})
		}
	}
	return out
}

// clip bounds a text, which becomes valid UTF-8 by it.
func clip(s string, n int) string {
	return strings.ToValidUTF8(strings.Clone(s[:min(len(s), n)]), "\uFFFD")
}
