package orchestrator

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"

	"xdsrelay/internal/fanout"
	"xdsrelay/internal/xds"
)

// What is kept of NACKs is bounded by key: so many different ones (by type,
// version and message; the one seen longest ago goes first), of each so many
// bytes of text and so many clients. Numbers are counted on.
const (
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
	mu    sync.Mutex
	total uint64
	kept  []*nackRow
}

type nackRow struct {
	NackStatus
	seen map[uint64]struct{} // hashes of nodes' ids
}

var nackSeed = maphash.MakeSeed()

func (k *nacks) note(typ xds.TypeURL, n fanout.Nack, now time.Time) {
	url, version, node := clip(string(typ), maxNackName), clip(n.Version, maxNackName), clip(n.Node, maxNackName)
	message, hash := clip(n.Message, maxNackMessage), maphash.String(nackSeed, n.Node)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.total++
	at := slices.IndexFunc(k.kept, func(s *nackRow) bool {
		return s.Type == url && s.Version == version && s.Message == message
	})
	var s *nackRow
	switch {
	case at >= 0:
		s = k.kept[at]
		k.kept = slices.Delete(k.kept, at, at+1)
	case len(k.kept) == maxNacks:
		k.kept = slices.Delete(k.kept, 0, 1)
		fallthrough
	default:
		s = &nackRow{NackStatus: NackStatus{Type: url, Version: version, Message: message, First: now}, seen: make(map[uint64]struct{})}
	}
	s.Code, s.Last = n.Code, now
	s.Count++
	s.said(node, hash, now)
	k.kept = append(k.kept, s)
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
		row := s.NackStatus
		row.Clients = slices.Clone(row.Clients)
		out = append(out, row)
	}
	return k.total, out
}

// clip bounds a text, which becomes valid UTF-8 by it.
func clip(s string, n int) string {
	return strings.ToValidUTF8(strings.Clone(s[:min(len(s), n)]), "\uFFFD")
}
