package history

import (
	"hash/maphash"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/xds"
)

// The bounds on kept NACKs. A key keeps at most maxNacks rows, which differ by type, version and
// message. The row that was seen longest ago is removed first. All keys together keep at most
// allNackBytes, with the same order. Removed NACKs still count.
const (
	allNackBytes   = 16 << 20
	maxNacks       = 128
	maxNackMessage = 1024
	maxNackName    = 256 // bytes of a node's id, of a version, and of a type
	maxNackClients = 10  // clients kept by name: those that NACKed last
	maxNackCounted = 128 // distinct clients that are counted
)

// Nack is a response that clients NACKed, with the reason and the clients (P17: NACKs are counted
// and kept within a bound).
type Nack struct {
	Type    string    `json:"type"`
	Version string    `json:"version"`
	Code    int32     `json:"code"`
	Message string    `json:"message"`
	Count   uint64    `json:"count"`
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
	// Clients are the clients that NACKed it last, the newest first. ClientsTotal is their full
	// number. If ClientsAtLeast is set, there were more.
	Clients        []NackClient `json:"clients"`
	ClientsTotal   int          `json:"clients_total"`
	ClientsAtLeast bool         `json:"clients_at_least,omitempty"`
	// StillNacking is how many clients still reject it: since their NACK they have accepted
	// nothing in its place. Each stream counts, and so does each client that polls.
	StillNacking int `json:"still_nacking"`
	// Rejected are the resources at the first of these NACKs; nil: they are not kept.
	Rejected *Rejected `json:"-"`
}

// NackClient is a node that sent a NACK.
type NackClient struct {
	Node  string    `json:"node"`
	Count uint64    `json:"count"`
	Last  time.Time `json:"last"`
}

// Nacks are those of one key. They are safe for concurrent use.
type Nacks struct {
	key xds.Key
	all *allNacks

	mu     sync.Mutex // locked before those of allNacks
	total  uint64
	rows   []*nackRow // the one seen longest ago first
	closed bool
}

// NewNacks makes the Nacks of a key.
func (h *History) NewNacks(key xds.Key) *Nacks { return &Nacks{key: key, all: &h.nacks} }

// nackRow is a kept Nack.
type nackRow struct {
	nacks *Nacks
	Nack
	seen map[uint64]struct{} // hashes of the ids of nodes

	inAll        slot // in allNacks.rows
	withRejected slot // in allNacks.rejected
}

// allNacks are the rows of all keys.
type allNacks struct {
	dropped  func(int) // counts the rows that a bound removed
	rows     rowList
	rejected rowList // the rows that have resources
}

// The approximate sizes of a row without its texts, of each client in it, and of each
// client that is counted, in bytes.
const (
	nackCost        = 512
	nackClientCost  = 64
	nackCountedCost = 40
)

// size is the size of the row in bytes. The caller has its key's lock.
func (r *nackRow) size() int64 {
	n := nackCost + len(r.Type) + len(r.Version) + len(r.Message) + nackCountedCost*len(r.seen)
	for i := range r.Clients {
		n += nackClientCost + len(r.Clients[i].Node)
	}
	return int64(n)
}

var nackSeed = maphash.MakeSeed()

// Note counts a NACK of a client and keeps it. If the resources of its row are not kept, Note calls
// rejected, which returns them; nil: they must not be kept.
func (k *Nacks) Note(typ xds.TypeURL, n subscriber.Nack, now time.Time, rejected func() *Rejected) {
	url, version, node := ClipName(string(typ)), ClipName(n.Version), ClipName(n.Node)
	message, hash := clip(n.Message, maxNackMessage), maphash.String(nackSeed, n.Node)
	k.mu.Lock()
	k.total++
	if k.closed {
		k.mu.Unlock()
		return
	}
	dropped := 0
	at := slices.IndexFunc(k.rows, func(r *nackRow) bool {
		return r.Type == url && r.Version == version && r.Message == message
	})
	var r *nackRow
	switch {
	case at >= 0:
		r = k.rows[at]
		k.rows = slices.Delete(k.rows, at, at+1)
	case len(k.rows) == maxNacks:
		k.all.rows.remove(k.rows[0])
		k.all.rejected.remove(k.rows[0])
		k.rows = slices.Delete(k.rows, 0, 1)
		dropped++
		fallthrough
	default:
		r = &nackRow{nacks: k, Nack: Nack{Type: url, Version: version, Message: message, First: now}, seen: make(map[uint64]struct{})}
	}
	r.Code, r.Last = n.Code, now
	r.Count++
	r.noteClient(node, hash, now)
	k.rows = append(k.rows, r)
	out, wanted := k.all.rows.use(r, r.size()), r.Rejected == nil
	k.mu.Unlock()
	for _, o := range out {
		o.nacks.drop(o)
	}
	if dropped += len(out); dropped > 0 {
		k.all.dropped(dropped)
	}
	if !wanted {
		return
	}
	if what := rejected(); what != nil {
		k.keepRejected(r, what)
	}
}

// drop removes a row that a bound over all keys removed, unless it was seen since.
func (k *Nacks) drop(r *nackRow) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.all.rows.has(r) {
		k.all.rejected.remove(r)
		k.rows = slices.DeleteFunc(k.rows, func(o *nackRow) bool { return o == r })
	}
}

// Close forgets everything, and makes later calls of Note do nothing.
func (k *Nacks) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.rows {
		k.all.rows.remove(r)
		k.all.rejected.remove(r)
	}
	k.rows, k.closed = nil, true
}

func (r *nackRow) noteClient(node string, hash uint64, now time.Time) {
	if _, known := r.seen[hash]; !known {
		if len(r.seen) < maxNackCounted {
			r.seen[hash] = struct{}{}
		} else {
			r.ClientsAtLeast = true
		}
	}
	r.ClientsTotal = len(r.seen)
	c := NackClient{Node: node}
	if i := slices.IndexFunc(r.Clients, func(c NackClient) bool { return c.Node == node }); i >= 0 {
		c = r.Clients[i]
		r.Clients = slices.Delete(r.Clients, i, i+1)
	} else if len(r.Clients) == maxNackClients {
		r.Clients = r.Clients[:maxNackClients-1]
	}
	c.Count++
	c.Last = now
	r.Clients = slices.Insert(r.Clients, 0, c)
}

// Total returns how many NACKs were noted.
func (k *Nacks) Total() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.total
}

// All returns how many NACKs were noted, and the kept ones, the newest first.
func (k *Nacks) All() (total uint64, kept []Nack) {
	k.mu.Lock()
	defer k.mu.Unlock()
	kept = make([]Nack, 0, len(k.rows))
	for _, r := range slices.Backward(k.rows) {
		kept = append(kept, r.copyLocked())
	}
	return k.total, kept
}

// copyLocked returns the row as it is now. The caller has its key's lock.
func (r *nackRow) copyLocked() Nack {
	n := r.Nack
	n.Clients = slices.Clone(n.Clients)
	return n
}

// KeyNack is a Nack of any key.
type KeyNack struct {
	Key xds.Key
	// Place orders the NACKs of all keys: it grows with each noted NACK.
	Place uint64
	Nack
}

// Nacks yields the kept NACKs of all keys, the newest first. It begins with the first one below the
// place before, or with the newest if before is 0. Each one is read when it is yielded. One that
// was noted again meanwhile is yielded at its old place.
func (h *History) Nacks(before uint64) iter.Seq[KeyNack] {
	return func(yield func(KeyNack) bool) {
		for _, at := range h.nacks.rows.below(before) {
			k := at.row.nacks
			k.mu.Lock()
			n := KeyNack{Key: k.key, Place: at.seq, Nack: at.row.copyLocked()}
			k.mu.Unlock()
			if !yield(n) {
				return
			}
		}
	}
}

// ClipName shortens the id of a node, a version or a type to the bound of a Nack.
func ClipName(s string) string { return clip(s, maxNackName) }

// clip bounds a text in bytes and makes it valid UTF-8. The result is a copy.
func clip(s string, n int) string {
	return strings.ToValidUTF8(strings.Clone(s[:min(len(s), n)]), "\uFFFD")
}

// NackCounts has the number of clients that still reject something, by the Nack.
type NackCounts map[nackID]int

// nackID identifies a Nack of a key.
type nackID struct {
	key                   xds.Key
	typ, version, message string
}

// CountNacks reads all states once. The result has an entry for each different Nack among them.
func CountNacks(states iter.Seq[inspect.TypeState]) NackCounts {
	out := make(NackCounts)
	for at := range states {
		if n := at.Nack; n != nil {
			out[nackID{at.Key, clipped(string(at.Type), maxNackName), clipped(n.Version, maxNackName), clipped(n.Message, maxNackMessage)}]++
		}
	}
	return out
}

// SetStillNacking sets StillNacking in NACKs of a key.
func (c NackCounts) SetStillNacking(key xds.Key, nacks []Nack) {
	for i := range nacks {
		n := &nacks[i]
		n.StillNacking = c[nackID{key, n.Type, n.Version, n.Message}]
	}
}

// clipped is clip, but it copies only a text that has to change.
func clipped(s string, n int) string {
	if len(s) <= n && utf8.ValidString(s) {
		return s
	}
	return clip(s, n)
}
