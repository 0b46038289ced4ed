package refusal

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/redact"
)

// maxText bounds what is shown of a refusal's message, in bytes.
const maxText = 512

// recentHalf is half of the time that Recent covers.
const recentHalf = 30 * time.Second

// Recent is what was refused or ended lately for one reason: streams, polls and TLS
// handshakes, without planned ends.
type Recent struct {
	Reason string `json:"reason"`
	Count  int    `json:"count"` // in the last minute, or a little less
	// Node and Error are those of the last one.
	Node  string    `json:"node,omitempty"` // empty: not known
	Key   string    `json:"key,omitempty"`  // the key whose clients are all refused
	Error string    `json:"error"`
	At    time.Time `json:"at"`
}

// recent counts refusals by reason, in two halves of a minute. It has at most two entries
// for each reason.
type recent struct {
	mu      sync.Mutex
	before  map[telemetry.Reason]counted // the half before the current one
	current map[telemetry.Reason]counted
	started time.Time // of the current half
}

// counted is the number of refusals for one reason, and the last one.
type counted struct {
	count int
	last  *Refusal
	node  string
	at    time.Time
}

func (c counted) show() Recent {
	return Recent{
		Reason: string(c.last.Reason), Count: c.count, At: c.at,
		Node: c.node, Key: c.last.Key, Error: Short(redact.Text(c.last.Error()), maxText),
	}
}

// note counts a refusal of the client with this node; empty: not known.
func (s *recent) note(r *Refusal, node string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rotate(now)
	s.current[r.Reason] = counted{s.current[r.Reason].count + 1, r, strings.Clone(Short(node, maxText)), now}
}

// rotate starts a new half when the current one is over. The lock is held.
func (s *recent) rotate(now time.Time) {
	switch passed := now.Sub(s.started); {
	case s.current == nil || passed >= 2*recentHalf:
		s.before, s.current, s.started = nil, make(map[telemetry.Reason]counted), now
	case passed >= recentHalf:
		s.before, s.current, s.started = s.current, make(map[telemetry.Reason]counted), now
	}
}

// list returns the refusals of the last minute by reason, the most frequent first.
func (s *recent) list(now time.Time) []Recent {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rotate(now)
	var out []Recent
	for r, one := range s.current {
		one.count += s.before[r].count
		out = append(out, one.show())
	}
	for r, one := range s.before {
		if _, has := s.current[r]; !has {
			out = append(out, one.show())
		}
	}
	slices.SortFunc(out, func(a, b Recent) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Reason, b.Reason))
	})
	return out
}

// Short returns the beginning of a text, at most n bytes, in whole characters.
func Short(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}
