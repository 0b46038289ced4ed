package upstream

import "time"

// doubt decides when silence says of a name that there is none (P57): not before the name's time
// is over (talker.deadline), and then not for as long as what was asked may still be answered.
// Pure: it is told what is so, and what time it is.
type doubt struct {
	absentAfter time.Duration

	until  time.Time // nothing is taken for absent before
	heard  time.Time // until when what came may not be read yet
	ahead  time.Time // what is due then was asked for ahead
	look   time.Time // when to see whether the origin has shown life since it was asked in vain; zero: it was not
	again  time.Time // the last of until that was for that the origin begins to speak, or lives again
	graces int       // of these, for what is due
	of     time.Time // when that is
	most   time.Time // heard is no later, as the relay was busy though it was due
}

// maxGraces is how often what is waited for waits on since its origin begins to speak, or lives again.
// One of which some servers hang, and others answer, dies and lives for ever.
const maxGraces = 3

// signs are what is so when it is asked for a decision.
type signs struct {
	due        time.Time // when the first name's time is over; zero: none has any
	listens    time.Time // the relay's process has not run, and does not listen until then
	lively     bool      // the origin showed life a moment ago
	from       time.Time // since when it has
	lasts      bool      // it will still have when due, if it shows no more
	lost       bool      // it spoke, and is known to show none since
	mute       bool      // it never spoke
	known      bool      // it has spoken for the key
	early      time.Time // it has just begun to speak to anybody, and has time until then
	grace      time.Time // it lives again, and has time until then
	unanswered bool      // there is something that silence decides when it is due
}

// decision is what to do.
type decision uint8

const (
	waitOn  decision = iota // and ask again at next
	askLife                 // ask the origin for a sign of life
	isGone                  // what is unanswered is taken for absent
)

// given is how long an origin has at least from when it shows life: it may have hung until
// then. askAhead is how long before a name's time is over it is asked for a sign, so that this is
// none to wait for.
func (d *doubt) given() time.Duration    { return d.absentAfter / 5 }
func (d *doubt) askAhead() time.Duration { return d.absentAfter / 4 }

// next is when to ask for a decision of what is due; zero: nothing is, but lost may end.
func (d *doubt) next(due time.Time, lost bool) time.Time {
	if !due.IsZero() && !due.Equal(d.ahead) {
		due = due.Add(-d.askAhead())
	}
	if due.Before(d.until) || lost {
		due = d.until
	}
	if !d.look.IsZero() && d.look.Before(due) {
		due = d.look
	}
	return later(due, d.heard)
}

// decide is called at next, or after it.
func (d *doubt) decide(now time.Time, s signs) decision {
	if !s.due.Equal(d.of) { // what was due before is gone, or was let go
		d.of, d.graces = s.due, 0
	}
	if now.Before(s.listens) {
		d.heard = s.listens
		return waitOn
	}
	if !s.lively && !d.look.IsZero() && now.Before(d.until) {
		d.look = now.Add(livelyFor(d.absentAfter) / 2)
		return waitOn
	}
	d.look = time.Time{}
	switch {
	case now.Before(d.heard):
		return waitOn
	case s.mute:
		d.until = now.Add(d.absentAfter)
		return waitOn
	case now.Before(s.due.Add(-d.askAhead())) && !s.lost:
		return waitOn
	case now.Before(s.due) && !s.lost:
		d.ahead = s.due
		if s.lasts || !s.unanswered {
			return waitOn
		}
		return askLife
	case now.Before(s.early) && (!d.until.IsZero() || !s.known) && d.grant(s.early):
		return waitOn
	case now.Before(s.grace) && !s.lost && d.grant(s.grace):
		return waitOn
	case s.lively && now.Before(s.from.Add(d.given())):
		d.until = s.from.Add(d.given())
		return waitOn
	case !s.lively && (s.lost || s.unanswered):
		return askLife
	}
	return isGone
}

// grant has what is due wait until then, and reports whether it may: since the origin begins to
// speak, or to live, it does so not too often.
func (d *doubt) grant(until time.Time) bool {
	if !until.Equal(d.again) {
		if d.graces == maxGraces {
			return false
		}
		d.graces++
	}
	d.until, d.again = until, until
	return true
}

// since is from when on a sign of life counts, however late it is asked for what is due.
func (d *doubt) since(now, due time.Time) time.Time {
	if !due.IsZero() && due.Before(now) {
		now = due
	}
	return now.Add(-livelyFor(d.absentAfter))
}

// lives says that the origin has shown life when asked; lifeless, that it has not.
func (d *doubt) lives() { d.look = time.Time{} }

func (d *doubt) lifeless(now time.Time) {
	d.until = now.Add(d.absentAfter)
	d.look = now.Add(livelyFor(d.absentAfter) / 2)
}

// busy says that what came at a time is applied now: what came behind it has as long
// again, but not for ever from when the relay first listened after the name's time.
func (d *doubt) busy(since, now, due time.Time) {
	if due.IsZero() {
		return
	}
	wait := min(now.Sub(since), d.absentAfter)
	if !now.Before(due) {
		if d.most.Before(due.Add(d.absentAfter)) { // it is of what was due before
			d.most = now.Add(d.absentAfter)
		}
		wait = min(wait, d.most.Sub(now))
	}
	d.heard = later(d.heard, now.Add(wait))
}
