package snapshot

import "time"

// Withheld says for what the full-state response to a client that resumes waits (P67). Larger values
// are longer waits.
type Withheld uint8

const (
	NotWithheld Withheld = iota
	WithheldForNames
	WithheldForWildcard
)

// NamesWait is how long at most a client that resumes waits for unanswered names (P67). The time starts
// when anything that the client requests is answered. WildcardWait is how long at most its listeners and
// routes wait for the answer to the wildcard of clusters.
const (
	NamesWait    = 5 * time.Second
	WildcardWait = 15 * time.Second
)

// AtMost is how long at most listeners and routes wait for such clusters. The time starts with the
// client's first request for the type.
func (w Withheld) AtMost() time.Duration {
	switch w {
	case WithheldForNames:
		return NamesWait
	case WithheldForWildcard:
		return WildcardWait
	}
	return 0
}

// Withheld returns for what a full-state response to a client with s waits before the origin has
// answered anything.
func (s *Subscription) Withheld() Withheld {
	switch {
	case !s.Resumed || s.Empty():
		return NotWithheld
	case s.Wildcard:
		return WithheldForWildcard
	}
	return WithheldForNames
}
