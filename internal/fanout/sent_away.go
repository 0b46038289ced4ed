package fanout

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/redact"
	"xdsrelay/internal/xds"
)

// maxSentAwayText bounds what is shown of why somebody was sent away, in bytes.
const maxSentAwayText = 512

// sentAwayHalf is half of the time that SentAway covers.
const sentAwayHalf = 30 * time.Second

// SentAway is what was refused or ended lately for one reason: streams, polls and TLS
// handshakes, but those whose time had come.
type SentAway struct {
	Reason string `json:"reason"`
	Count  int    `json:"count"` // in the last minute, or a little less
	// The last one: whose it was as far as it is known, and what was said.
	Node  string    `json:"node,omitempty"`
	Key   string    `json:"key,omitempty"` // that is why, whoever of it comes
	Error string    `json:"error"`
	At    time.Time `json:"at"`
}

// maxNodeText bounds how much of a node's ID is logged and kept for a client that was refused,
// in bytes: an ID may be as long as its node.
const maxNodeText = 256

// noteNode notes the node of a first request that is refused, before anything is made of it.
func noteNode(r *Refusal, node []byte) {
	r.Node = strings.Clone(short(xds.NodeIDOf(node), maxNodeText))
}

// sentAways counts who is sent away, by reason, in two halves of a minute. It is as
// large as there are reasons.
type sentAways struct {
	mu      sync.Mutex
	before  map[telemetry.Reason]sentAway
	lately  map[telemetry.Reason]sentAway
	started time.Time // lately did
}

// sentAway is how many there were, and the last one.
type sentAway struct {
	count int
	why   *Refusal
	node  string
	at    time.Time
}

func (a sentAway) show() SentAway {
	return SentAway{
		Reason: a.why.Reason.String(), Count: a.count, At: a.at,
		Node: a.node, Key: a.why.Key, Error: short(redact.Text(a.why.Error()), maxSentAwayText),
	}
}

func (s *sentAways) note(r *Refusal, node string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn(now)
	s.lately[r.Reason] = sentAway{s.lately[r.Reason].count + 1, r, strings.Clone(short(node, maxSentAwayText)), now}
}

// turn begins a new half when it is time to. s.mu is held.
func (s *sentAways) turn(now time.Time) {
	switch passed := now.Sub(s.started); {
	case s.lately == nil || passed >= 2*sentAwayHalf:
		s.before, s.lately, s.started = nil, make(map[telemetry.Reason]sentAway), now
	case passed >= sentAwayHalf:
		s.before, s.lately, s.started = s.lately, make(map[telemetry.Reason]sentAway), now
	}
}

// status returns what is known, the most first.
func (s *sentAways) status(now time.Time) []SentAway {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn(now)
	var out []SentAway
	for r, one := range s.lately {
		one.count += s.before[r].count
		out = append(out, one.show())
	}
	for r, one := range s.before {
		if _, has := s.lately[r]; !has {
			out = append(out, one.show())
		}
	}
	slices.SortFunc(out, func(a, b SentAway) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Reason, b.Reason))
	})
	return out
}

// SentAway returns who was refused, or whose stream was ended, in the last minute, by
// reason. It may be called at any time.
func (s *Server) SentAway() []SentAway { return s.sentAway.status(time.Now()) }

// short is the beginning of a text, in whole characters.
func short(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}
