package upstream

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

// streamEnds remembers the last ends of a key's streams at one origin.
type streamEnds struct {
	at    *Origin
	ends  Ends
	times [frequentEnds]time.Time // a ring; the next one is at ends.Count
}

// add records an end. It starts again at another origin, and after a pause.
func (e *streamEnds) add(at *Origin, err error, now time.Time) {
	last := e.times[(e.ends.Count+frequentEnds-1)%frequentEnds]
	if e.at != at || now.Sub(last) > endsWithin {
		*e = streamEnds{at: at, ends: Ends{Origin: at.Name, Since: now}}
	}
	e.times[e.ends.Count%frequentEnds] = now
	e.ends.Count++
	e.ends.Err = err
}

// frequent returns the ends if there were enough of them lately; nil: there were not.
func (e *streamEnds) frequent(now time.Time) *Ends {
	if e.ends.Count < frequentEnds || now.Sub(e.times[e.ends.Count%frequentEnds]) > endsWithin {
		return nil
	}
	out := e.ends
	return &out
}

// FrequentEnds returns the ends of the key's stream if it ended 5 times or more within the last
// minute. Nil: it did not, or the origin is away. Any goroutine.
func (s *Source) FrequentEnds() *Ends {
	s.mu.Lock()
	at, out := s.ends.at, s.ends.frequent(time.Now())
	s.mu.Unlock()
	if out != nil && at.isAway() {
		return nil
	}
	return out
}
