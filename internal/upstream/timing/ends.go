package timing

import "time"

// Ends says that the streams of a key end again and again, at an origin that is not away.
type Ends struct {
	Origin string
	Count  int       // of the ends since Since, each within endsWithin after the one before
	Since  time.Time // the first of them
	Err    error     // why the last stream ended
}

// A key whose streams ended frequentEnds times within endsWithin is a problem.
const (
	frequentEnds = 5
	endsWithin   = time.Minute
)

// StreamEnds remembers the last ends of a key's streams at one origin.
type StreamEnds struct {
	ends  Ends
	times [frequentEnds]time.Time // a ring; the next one is at ends.Count
}

// Add records an end. It starts again at another origin, and after a pause.
func (e *StreamEnds) Add(origin string, err error, now time.Time) {
	last := e.times[(e.ends.Count+frequentEnds-1)%frequentEnds]
	if e.ends.Origin != origin || now.Sub(last) > endsWithin {
		*e = StreamEnds{ends: Ends{Origin: origin, Since: now}}
	}
	e.times[e.ends.Count%frequentEnds] = now
	e.ends.Count++
	e.ends.Err = err
}

// Frequent returns the ends if there were enough of them lately; nil: there were not.
func (e *StreamEnds) Frequent(now time.Time) *Ends {
	if e.ends.Count < frequentEnds || now.Sub(e.times[e.ends.Count%frequentEnds]) > endsWithin {
		return nil
	}
	out := e.ends
	return &out
}
