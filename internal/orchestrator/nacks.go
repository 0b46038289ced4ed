package orchestrator

import (
	"slices"
	"strings"
	"sync"
	"time"

	"xdsrelay/internal/fanout"
	"xdsrelay/internal/xds"
)

// What is kept of NACKs is bounded by key: so many different ones (by type,
// version and client; the one seen longest ago goes first), of each so many
// bytes of text. Numbers are counted on.
const (
	maxNacks       = 256
	maxNackMessage = 1024
	maxNackName    = 256 // of a node's id, of a version, and of a type
)

// NackStatus is what was refused, by whom and why (P17).
type NackStatus struct {
	Type    string    `json:"type"`
	Version string    `json:"version"`
	Node    string    `json:"node"`
	Code    int32     `json:"code"`
	Message string    `json:"message"`
	Count   uint64    `json:"count"`
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
}

// nacks are those of one key, the one seen longest ago first. They are safe for
// concurrent use; receivers call note.
type nacks struct {
	mu    sync.Mutex
	total uint64
	kept  []*NackStatus
}

func (k *nacks) note(typ xds.TypeURL, n fanout.Nack, now time.Time) {
	url, version, node := clip(string(typ), maxNackName), clip(n.Version, maxNackName), clip(n.Node, maxNackName)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.total++
	at := slices.IndexFunc(k.kept, func(s *NackStatus) bool {
		return s.Type == url && s.Version == version && s.Node == node
	})
	var s *NackStatus
	switch {
	case at >= 0:
		s = k.kept[at]
		k.kept = slices.Delete(k.kept, at, at+1)
	case len(k.kept) == maxNacks:
		k.kept = slices.Delete(k.kept, 0, 1)
		fallthrough
	default:
		s = &NackStatus{Type: url, Version: version, Node: node, First: now}
	}
	s.Code, s.Message, s.Last = n.Code, clip(n.Message, maxNackMessage), now
	s.Count++
	k.kept = append(k.kept, s)
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
		out = append(out, *s)
	}
	return k.total, out
}

// clip bounds a text, which becomes valid UTF-8 by it.
func clip(s string, n int) string {
	return strings.ToValidUTF8(strings.Clone(s[:min(len(s), n)]), "\uFFFD")
}
