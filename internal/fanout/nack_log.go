package fanout

import (
	"context"
	"hash/maphash"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"xdsrelay/internal/xds"
)

// What is bounded of the lines about refusals: how often one is repeated, of how
// many versions it is known that they were refused, and how many clients are told
// apart, of all of them.
const (
	nackEvery   = 30 * time.Second
	maxTales    = 256
	maxRefusers = 65536
)

// nackLog writes what clients refuse. The first refusal of a version of a key's type
// is a line at once; those that follow, of whatever clients, are one line each
// nackEvery that counts them, for as long as they come. A version that a fleet
// refuses is so a line and then two a minute, and not one for each client and
// each time that it connects.
type nackLog struct {
	log     *slog.Logger
	sparing *sparing
	seed    maphash.Seed

	mu       sync.Mutex
	tales    map[nackOf]*nackTale
	refusers int // that the tales tell apart
}

// nackOf is what was refused.
type nackOf struct {
	key     xds.Key
	typ     xds.TypeURL
	version string
}

// nackTale is what is known of its refusals.
type nackTale struct {
	of    nackOf
	since time.Time
	heard time.Time
	all   uint64
	more  uint64              // that no line has told yet
	nodes map[uint64]struct{} // hashes of those that refused
	many  bool                // and others, that are not told apart
	last  Nack
}

// told is a tale with the number of its clients, which go on to come.
type told struct {
	nackTale
	clients int
}

func (t *nackTale) told() told {
	out := told{*t, len(t.nodes)}
	out.nodes = nil
	return out
}

func newNackLog(log *slog.Logger, s *sparing) *nackLog {
	return &nackLog{log: log, sparing: s, seed: maphash.MakeSeed(), tales: make(map[nackOf]*nackTale)}
}

// note tells of a refusal. The message has no secret any more.
func (l *nackLog) note(of nackOf, n *Nack, nonce string, now time.Time) {
	first, dropped := l.add(of, n, now)
	if dropped != nil {
		l.tell(dropped.told())
	}
	if first {
		l.sparing.line(l.log, slog.LevelWarn, "client refused a response", "node", n.Node, "key", of.key.String(), "type", of.typ,
			"version", of.version, "nonce", nonce, "code", codes.Code(n.Code).String(), "reason", n.Message)
	}
}

// add counts a refusal. It reports whether it is the first of its version, and
// returns what has to go for it and has something to tell.
func (l *nackLog) add(of nackOf, n *Nack, now time.Time) (first bool, dropped *nackTale) {
	node := maphash.String(l.seed, n.Node)
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tales[of]
	if first = t == nil; first {
		if len(l.tales) == maxTales {
			dropped = l.drop(l.oldest())
		}
		t = &nackTale{of: of, since: now, nodes: make(map[uint64]struct{})}
		l.tales[of] = t
	} else {
		t.more++
	}
	t.all++
	t.heard, t.last = now, *n
	switch _, known := t.nodes[node]; {
	case known:
	case l.refusers == maxRefusers:
		t.many = true
	default:
		t.nodes[node] = struct{}{}
		l.refusers++
	}
	return first, dropped
}

// oldest is what was heard of longest ago. Under the lock.
func (l *nackLog) oldest() (oldest *nackTale) {
	for _, t := range l.tales {
		if oldest == nil || t.heard.Before(oldest.heard) {
			oldest = t
		}
	}
	return oldest
}

// drop forgets a tale, and returns it if it has something to tell. Under the lock.
func (l *nackLog) drop(t *nackTale) *nackTale {
	delete(l.tales, t.of)
	l.refusers -= len(t.nodes)
	if t.more == 0 {
		return nil
	}
	return t
}

// due takes what is to be told now, and forgets what was not refused any more for
// as long as that takes.
func (l *nackLog) due() (out []told) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.tales {
		if t.more == 0 {
			l.drop(t)
			continue
		}
		out = append(out, t.told())
		t.more = 0
	}
	return out
}

// tell writes the line of what was refused again. It is none of those that clients
// cause at will: there are at most maxTales in nackEvery.
func (l *nackLog) tell(t told) {
	clients := "clients"
	if t.many {
		clients = "clients_at_least"
	}
	l.log.Warn("clients refused a response again", "key", t.of.key.String(), "type", t.of.typ, "version", t.of.version,
		"more", t.more, "count", t.all, clients, t.clients, "for", t.heard.Sub(t.since).Round(time.Second).String(),
		"node", t.last.Node, "code", codes.Code(t.last.Code).String(), "reason", t.last.Message, "last", t.heard)
}

// run tells what is due until ctx ends, and then the rest.
func (l *nackLog) run(ctx context.Context) {
	tick := time.NewTicker(nackEvery)
	defer tick.Stop()
	for over := false; !over; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			over = true
		}
		for _, t := range l.due() {
			l.tell(t)
		}
	}
}
