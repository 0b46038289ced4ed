package audience

import (
	"time"

	"xdsrelay/internal/xds"
)

// Expire forgets names that have lingered for linger, and names that have to make room for wanted
// ones under limit, which bounds the weight of all unions; 0 is no limit. The clock runs if on is
// set and the key has subscribers.
func (a *Audience[M]) Expire(now time.Time, on bool, linger time.Duration, limit int) {
	if on = on && !a.frozen; on != a.runs {
		a.ran, a.runs, a.from = a.clock(now), on, now
	}
	over := 0
	if limit > 0 {
		over = -limit
		for _, t := range a.types {
			over += t.names.Weight()
		}
	}
	for e := a.lingering.Front(); e != nil; {
		l := e.Value.(*lingeringName[M])
		e = e.Next()
		due := a.runs && a.clock(now) >= l.since+linger
		if !due && over <= 0 {
			break
		}
		switch {
		case !l.wildcard:
			l.typ.lapsed = append(l.typ.lapsed, l.name)
			over -= xds.NameWeight(len(l.name))
		case !due:
		case l.typ.wildcardServes():
			l.typ.endLinger(l.subscribed) // the next Merge makes it linger again
		default:
			l.typ.forgetWildcard()
		}
	}
	for _, t := range a.types {
		t.forget(t.lapsed)
		t.lapsed = nil
	}
}

// Next returns when the next name expires; zero: none expires by time alone.
func (a *Audience[M]) Next(linger time.Duration) time.Time {
	if e := a.lingering.Front(); e != nil && a.runs {
		return a.from.Add(e.Value.(*lingeringName[M]).since + linger - a.ran)
	}
	return time.Time{}
}

// beginLinger records that no subscriber wants a name any more.
func (t *TypeAudience[M]) beginLinger(at subscribed, now time.Time) {
	if t.lingering[at] == nil {
		t.lingering[at] = t.audience.lingering.PushBack(&lingeringName[M]{t, at, t.audience.clock(now)})
	}
}

func (t *TypeAudience[M]) endLinger(at subscribed) {
	if e := t.lingering[at]; e != nil {
		t.audience.lingering.Remove(e)
		delete(t.lingering, at)
	}
}

// clock returns how long the clock has run.
func (a *Audience[M]) clock(now time.Time) time.Duration {
	if a.runs {
		return a.ran + now.Sub(a.from)
	}
	return a.ran
}
