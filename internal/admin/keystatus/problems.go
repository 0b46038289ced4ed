package keystatus

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/orchestrator"
	"xdsrelay/internal/telemetry/redact"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Subscriptions are a type, or names of a type.
type Subscriptions struct {
	Type     string `json:"type"` // the short name, or the URL
	Wildcard bool   `json:"wildcard,omitempty"`
	// Names are the first ones, at most maxNames. More: there are further ones.
	Names []string `json:"names,omitempty"`
	More  bool     `json:"more,omitempty"`
}

// maxNames bounds the names of Subscriptions.
const maxNames = 5

// String names what is subscribed: "EDS a, b and more".
func (s *Subscriptions) String() string {
	if s.Wildcard {
		return s.Type + " (wildcard)"
	}
	more := ""
	if s.More {
		more = " and more"
	}
	return s.Type + " " + strings.Join(s.Names, ", ") + more
}

// Suspended is what the key's stream does not carry.
type Suspended struct {
	Subscriptions
	Since time.Time `json:"since"`
	Error string    `json:"error"` // how the origin ended the last stream
}

func (s *Suspended) String() string {
	return fmt.Sprintf("the origin ends each stream with %s: %s", &s.Subscriptions, s.Error)
}

// FrequentEnds says how often a key's stream ended in a row, each within a minute of the one before.
type FrequentEnds struct {
	Origin string    `json:"origin"`
	Count  int       `json:"count"`
	Since  time.Time `json:"since"`
	Error  string    `json:"error"` // why the last stream ended
}

func (e *FrequentEnds) String() string {
	return fmt.Sprintf("origin %s ended the stream %d times in a row: %s", e.Origin, e.Count, e.Error)
}

// Silent is a stream of a key on which the origin has answered nothing.
type Silent struct {
	Origin, Node string // the origin, and the id of the node that it was sent
	Since        time.Time
}

func (s Silent) String() string {
	return fmt.Sprintf("origin %s has not answered node %q", s.Origin, s.Node)
}

// Silent returns the silent streams of a key with clients.
func (k *Key) Silent() (out []Silent) {
	for _, u := range []*Upstream{&k.Upstream, k.Second} {
		if u != nil && !u.SilentSince.IsZero() && k.Members > 0 {
			out = append(out, Silent{u.Origin, k.Node, u.SilentSince})
		}
	}
	return out
}

// Unanswered is what the origin has not answered of a type.
type Unanswered struct {
	Subscriptions
	Clients int       `json:"clients"` // that have waited for more than 30 s
	Since   time.Time `json:"since"`   // since when the first of them has waited
	// Arriving says how much of the first response of the key's stream has arrived; see Upstream.Arrived.
	Arriving string `json:"arriving,omitempty"`
}

func (u *Unanswered) String() string {
	clients := "1 client waits"
	if u.Clients != 1 {
		clients = fmt.Sprintf("%d clients wait", u.Clients)
	}
	text := fmt.Sprintf("the origin has not answered %s; %s", &u.Subscriptions, clients)
	if u.Arriving != "" {
		text += "; " + u.Arriving
	}
	return text
}

func suspendedOf(of *upstream.Suspended) Suspended {
	return Suspended{Since: of.Since, Error: redact.Text(of.Err.Error()), Subscriptions: Subscriptions{
		Type: label(xds.TypeOf(of.Type)), Wildcard: of.Count == 0, Names: of.Names, More: of.Count > len(of.Names),
	}}
}

// label is the short name of a type, or its URL.
func label(t xds.Type) string { return cmp.Or(t.Short, string(t.URL)) }

// unansweredOf returns what the origin has not answered of a type for which clients wait. Nil: it has
// answered everything meanwhile, another problem explains the silence, or the type is suspended.
func unansweredOf(of *orchestrator.Status, t *orchestrator.TypeStatus, w inspect.Waiting) *Unanswered {
	if !slices.ContainsFunc(of.Upstreams, func(s upstream.Status) bool { return s.Connected && s.SilentSince.IsZero() }) {
		return nil
	}
	u := &Unanswered{Clients: w.Clients, Since: w.Since, Subscriptions: Subscriptions{Type: label(t.Type)}}
	for i := range of.Upstreams {
		up := upstreamOf(&of.Upstreams[i])
		u.Arriving = cmp.Or(u.Arriving, up.Arrived())
	}
	suspended := func(wildcard bool, name string) bool {
		return slices.ContainsFunc(of.Suspended, func(s upstream.Suspended) bool {
			return s.Type == t.Type.URL && (s.Count == 0) == wildcard && (wildcard || s.Count > len(s.Names) || slices.Contains(s.Names, name))
		})
	}
	held := of.State.Snapshot(t.Type.URL)
	if t.Wildcard && !suspended(true, "") {
		for range held.Unanswered(&snapshot.Subscription{Wildcard: true}) {
			u.Wildcard = true
		}
	}
	for name := range held.Unanswered(&snapshot.Subscription{Names: t.Names}) {
		if suspended(false, name) {
			continue
		}
		if u.More = len(u.Names) == maxNames; u.More {
			break
		}
		u.Names = append(u.Names, name)
	}
	if !u.Wildcard && len(u.Names) == 0 {
		return nil
	}
	return u
}
