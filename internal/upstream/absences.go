package upstream

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"xdsrelay/internal/xds"
)

// That names are taken for absent (P57) is a guess, by which clients are told that they do
// not exist: who looks for why has to find it in the log. It is a line for each key and
// type at once, and then one each absencesEvery that counts those that followed, for as
// long as there are any; of all keys together they are as many as versions are told.
const (
	absencesEvery = 30 * time.Second
	// maxAbsences is how many keys' types are known; what is more is a line each time.
	maxAbsences = 1024
	// maxNameText is how much of a name is told, in bytes.
	maxNameText = 256
)

// absences are what one client takes for absent for all its streams. Safe for concurrent
// use.
type absences struct {
	lines *lines
	after time.Duration // absent_after

	mu    sync.Mutex
	known map[guessedOf]*guessed
}

// guessedOf is of what names are.
type guessedOf struct {
	key    string
	typ    xds.TypeURL
	origin string
}

// guessed is what is known of them.
type guessed struct {
	log   *slog.Logger
	since time.Time
	last  time.Time
	all   int
	more  int    // that no line has told yet
	name  string // of one of the last
}

func newAbsences(after time.Duration) *absences {
	return &absences{lines: newLines(), after: after, known: make(map[guessedOf]*guessed)}
}

// note tells of names that are taken for absent, or counts them.
func (a *absences) note(s *Stream, u *xds.Update, now time.Time) {
	if len(u.Removed) == 0 {
		return
	}
	name := u.Removed[0]
	if len(name) > maxNameText {
		name = name[:maxNameText]
	}
	of := guessedOf{s.id, u.Type, u.Origin}
	a.mu.Lock()
	t := a.known[of]
	first := t == nil
	switch {
	case !first:
		t.all += len(u.Removed)
		t.more += len(u.Removed)
		t.last, t.name = now, name
	case len(a.known) < maxAbsences:
		a.known[of] = &guessed{log: s.log, since: now, last: now, all: len(u.Removed)}
	}
	a.mu.Unlock()
	if first {
		a.lines.tell(s.log, "names are taken for absent: the origin says nothing of them", "origin", u.Origin, "type", u.Type, "names", len(u.Removed), "one", name, "after", a.after.String())
	}
}

// due takes what is to be told now, and forgets of what nothing came any more.
func (a *absences) due(now time.Time) map[guessedOf]guessed {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make(map[guessedOf]guessed)
	for of, t := range a.known {
		if t.more == 0 {
			if now.Sub(t.last) >= absencesEvery {
				delete(a.known, of)
			}
			continue
		}
		out[of] = *t
		t.more = 0
	}
	return out
}

// run tells what is due until ctx ends, and then the rest.
func (a *absences) run(ctx context.Context) {
	tick := time.NewTicker(absencesEvery)
	defer tick.Stop()
	for over := false; !over; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			over = true
		}
		for of, t := range a.due(time.Now()) {
			a.lines.tell(t.log, "names are taken for absent again", "origin", of.origin, "type", of.typ, "more", t.more, "count", t.all, "one", t.name,
				"for", t.last.Sub(t.since).Round(time.Second).String(), "last", t.last)
		}
	}
}
