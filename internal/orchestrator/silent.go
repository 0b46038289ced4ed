package orchestrator

import (
	"context"
	"maps"
	"slices"
	"time"

	"xdsrelay/internal/xds"
)

// An origin that takes streams and says nothing on any of them can be reached, so it sends
// nobody away (P53). But it hangs, or is overloaded, and keeps clients waiting as one does that
// is away. So what is asked for on such a stream and not known comes from the last known
// good, as when no origin can be reached. For the origin to tell what of it is gone it
// has to be asked by who knows what is held (P55): so the stream ends first, once there is
// something in memory that it is worth, and the next one asks.

// silence is what was looked for on disk while an open stream brings nothing. Owned by the
// group's goroutine.
type silence struct {
	records map[xds.TypeURL]*remembered // of the types that were looked for; nil: there is none
	loading *reading                    // nil: nothing is being read
	look    time.Time                   // when to look again for what could not be read; zero: it could
	told    bool                        // that something is served
}

// question is one of a stream on which nothing comes.
type question struct {
	from   *link
	ended  bool          // and it wants what is recalled
	answer chan<- advice // room for one
}

type advice struct{ end, soon bool }

// Silent implements upstream.Sink.
func (l *link) Silent(ctx context.Context) (end, soon bool, err error) {
	if l.group.opts.Store == nil {
		return false, false, nil
	}
	a, err := l.question(ctx, false)
	return a.end, a.soon, err
}

// Recall implements upstream.Sink.
func (l *link) Recall(ctx context.Context) error {
	_, err := l.question(ctx, true)
	return err
}

func (l *link) question(ctx context.Context, ended bool) (advice, error) {
	given := make(chan advice, 1)
	select {
	case l.group.questions <- question{l, ended, given}:
	case <-l.group.over:
		return advice{}, errOver
	case <-ctx.Done():
		return advice{}, ctx.Err()
	}
	return <-given, nil // the goroutine does nothing in between
}

// hear answers a question.
func (g *Group) hear(q question) {
	now := time.Now()
	q.from.listen()
	if !q.ended {
		q.answer <- g.misses(q.from, now)
		return
	}
	g.remindAll(q.from.silence.records, q.from, now, "the origin says nothing", &q.from.silence.told)
	q.answer <- advice{}
}

// misses finds out whether there is a last known good of what is asked for on l and not
// known. What turned out to be of no use is not looked for again until the origin speaks.
func (g *Group) misses(l *link, now time.Time) (a advice) {
	s := &l.silence
	if s.loading != nil {
		read := s.loading.come(now)
		switch {
		case read == nil && !s.loading.hung:
			return advice{soon: true}
		case read == nil: // what there is in memory is of use meanwhile
		default:
			s.loading = nil
			if s.records != nil { // else the origin has spoken since it was looked for
				maps.Copy(s.records, read.records)
				if read.failed {
					s.look = now.Add(lookEvery)
				}
			}
		}
	}
	if s.records == nil && s.loading == nil {
		s.records = make(map[xds.TypeURL]*remembered)
	}
	if !s.look.IsZero() && !now.Before(s.look) {
		s.look = time.Time{}
		maps.DeleteFunc(s.records, func(_ xds.TypeURL, r *remembered) bool { return r == nil })
	}
	var types []xds.TypeURL
	for _, v := range g.views {
		rec, looked := s.records[v.typ.URL]
		g.weigh(rec)
		switch {
		case v.move.Load() != nil:
		case rec != nil && !rec.tooOld(now):
			a.end = a.end || slices.ContainsFunc(v.forgotten(rec), func(u xds.Update) bool { return v.at(u.Wildcard) == l })
		case !looked && (v.wildAt == l && v.lacksAll() || v.namesAt == l && v.lacksName()) && g.opts.Store.Has(g.key, v.typ.URL):
			types = append(types, v.typ.URL)
		}
	}
	if len(types) > 0 && !a.end && s.loading == nil {
		for _, typ := range types {
			s.records[typ] = nil // unless something is found that may be served
		}
		s.loading, a.soon = g.fetch(l.ctx, types), true
	}
	return a
}

// over forgets it, since the origin speaks. What is being read is waited for all the
// same: a disk that hangs is asked once.
func (s *silence) over() { *s = silence{loading: s.loading} }
