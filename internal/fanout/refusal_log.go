package fanout

import (
	"context"
	"hash/maphash"
	"log/slog"
	"strings"
	"sync"
	"time"

	"xdsrelay/internal/telemetry"
)

// What is bounded of the lines about who is sent away: how often one is repeated, and
// how many are known. What comes when there is no room for it is a line each time.
const (
	refusalEvery   = 30 * time.Second
	maxTurnedAways = 1024
)

// refusalLog writes who is sent away and why. A client that comes again and again, or
// all those of a key, are a line at once, and then one each refusalEvery that counts
// them, for as long as they come.
type refusalLog struct {
	log     *slog.Logger
	sparing *sparing
	seed    maphash.Seed

	mu    sync.Mutex
	known map[turnedAway]*turnedAways
}

// turnedAway is who was sent away, and why.
type turnedAway struct {
	what   string // that happened
	level  slog.Level
	who    string // the key if all of it is, else the node, else the address
	reason telemetry.Reason
	words  uint64 // a hash of what was said; 0: that is another each time
}

// turnedAways is what is known of it.
type turnedAways struct {
	since time.Time
	heard time.Time
	all   uint64
	more  uint64 // that no line has told yet
	last  []any  // the line's
}

func newRefusalLog(log *slog.Logger, s *sparing) *refusalLog {
	return &refusalLog{log: log, sparing: s, seed: maphash.MakeSeed(), known: make(map[turnedAway]*turnedAways)}
}

// note tells of a stream or poll that was refused or ended. Of endings that are planned
// there are tens of thousands in an hour: nobody wants a line each.
func (l *refusalLog) note(what string, r *Refusal, node, peer, account string, now time.Time) {
	args := append(whose(node, peer, account), "reason", r.Reason.String(), "code", r.Code.String())
	if r.Key != "" { // told once of its key, and not of each client
		args = append(args, "key", r.Key)
	} else {
		args = append(args, "error", r.Err)
	}
	if r.Reason.Planned() {
		l.sparing.line(l.log, slog.LevelDebug, what, args...)
		return
	}
	l.line(l.of(what, r, node, peer), args, now)
}

// handshake tells of a TLS handshake that failed: a client that cannot make one tries it
// again each second. The error is not kept: it has the client's certificates.
func (l *refusalLog) handshake(listener, peer string, err error, now time.Time) {
	said := short(err.Error(), maxSentAwayText)
	of := turnedAway{
		what: "a client's TLS handshake failed", level: slog.LevelWarn, reason: telemetry.Handshake,
		who: listener + " " + host(peer), words: maphash.String(l.seed, withoutNumbers(said)),
	}
	l.line(of, []any{"peer", peer, "listener", listener, "error", strings.Clone(said)}, now)
}

// withoutNumbers is a text but for what is another each time that it is said: a port,
// the time of day.
func withoutNumbers(text string) string {
	return strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return -1
		}
		return r
	}, text)
}

// line tells of one now, if it is to be told by itself.
func (l *refusalLog) line(of turnedAway, args []any, now time.Time) {
	if l.first(of, args, now) {
		l.sparing.line(l.log, of.level, of.what, args...)
	}
}

func (l *refusalLog) of(what string, r *Refusal, node, peer string) turnedAway {
	is := turnedAway{what: what, level: slog.LevelInfo, reason: r.Reason}
	switch {
	case r.Key != "":
		is.who = "key " + r.Key
		return is
	case node != "":
		is.who = "node " + node
	default:
		is.who = host(peer)
	}
	is.words = maphash.String(l.seed, r.Error())
	return is
}

// first counts one, and reports whether it is to be told by itself.
func (l *refusalLog) first(of turnedAway, args []any, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.known[of]
	if t == nil {
		if len(l.known) < maxTurnedAways {
			l.known[of] = &turnedAways{since: now, heard: now, all: 1}
		}
		return true
	}
	t.all++
	t.more++
	t.heard, t.last = now, args
	return false
}

// due takes what is to be told now, and forgets who did not come any more.
func (l *refusalLog) due() map[turnedAway]turnedAways {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make(map[turnedAway]turnedAways)
	for of, t := range l.known {
		if t.more == 0 {
			delete(l.known, of)
			continue
		}
		out[of] = *t
		t.more = 0
	}
	return out
}

// tell writes what is due.
func (l *refusalLog) tell() {
	for of, t := range l.due() {
		l.sparing.line(l.log, of.level, of.what+" again", append(t.last, "more", t.more, "count", t.all, "for", t.heard.Sub(t.since).Round(time.Second).String(), "last", t.heard)...)
	}
}

// run tells what is due until ctx ends, and then the rest.
func (l *refusalLog) run(ctx context.Context) {
	tick := time.NewTicker(refusalEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.tell()
		case <-ctx.Done():
			l.tell()
			return
		}
	}
}
