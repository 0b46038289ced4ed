package orchestrator

import (
	"context"
	"slices"
	"time"
)

// An origin that takes streams and says nothing on them can be reached, so it sends
// nobody away (P53). But it may hang, and then it keeps clients waiting as one does that
// is away. So what is asked for on a silent stream and not known comes from the last known
// good, as when no origin can be reached. Its silence may also mean that there is nothing:
// what is recalled is marked, no older than store.max_age, and gone once the origin says so. For that it
// has to be asked by who knows what is held (P55): so the stream ends first, and the next one asks.

// question is one of a stream on which nothing comes.
type question struct {
	from   *link
	ended  bool        // and it waits for what is recalled
	answer chan<- bool // room for one
}

// Silent implements upstream.Sink.
func (l *link) Silent(ctx context.Context) (end bool, err error) {
	if l.group.opts.Store == nil {
		return false, nil
	}
	return l.question(ctx, false)
}

// Recall implements upstream.Sink.
func (l *link) Recall(ctx context.Context) error {
	_, err := l.question(ctx, true)
	return err
}

func (l *link) question(ctx context.Context, ended bool) (bool, error) {
	answer := make(chan bool, 1)
	select {
	case l.group.questions <- question{l, ended, answer}:
	case <-l.group.over:
		return false, errOver
	case <-ctx.Done():
		return false, ctx.Err()
	}
	select {
	case yes := <-answer:
		return yes, nil
	case <-l.group.over:
		return false, errOver
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// hear takes a question; one that waits is answered by resume.
func (g *Group) hear(q question) {
	if q.ended {
		g.recall.waiting = append(g.recall.waiting, q.answer)
		g.recall.due = true
		return
	}
	q.answer <- g.misses(q.from, time.Now())
}

// resume has streams that ended for what is recalled go on.
func (g *Group) resume() {
	if g.recall.loading != nil {
		return
	}
	for _, answer := range g.recall.waiting {
		answer <- true
	}
	g.recall.waiting = nil
}

// misses reports whether there may be a last known good of what is asked for on l,
// and not known. What turned out to be of no use is not looked for with each silence,
// but read beside it now and then.
func (g *Group) misses(l *link, now time.Time) bool {
	r := &g.recall
	for _, v := range g.views {
		if v.move.Load() != nil {
			continue
		}
		switch rec, looked := r.records[v.typ.URL]; {
		case looked && rec != nil:
			for _, u := range v.forgotten(rec) {
				if v.at(u.Wildcard) == l {
					return true
				}
			}
		case !looked && (v.wildAt == l && v.lacksAll() || v.namesAt == l && v.lacksName()) && g.opts.Store.Has(g.key, v.typ.URL):
			return true
		}
	}
	if !r.look.IsZero() && !now.Before(r.look) && r.loading == nil {
		g.lookAgain()
		g.load()
	}
	return false
}

// silent reports whether some stream is open on which nothing has come for absent_after.
func (g *Group) silent() bool {
	return slices.ContainsFunc(g.lines(), func(l *link) bool { return l.judged != nil && !l.judged.SilentSince.IsZero() })
}
