package aggregator

import (
	"fmt"
	"strings"
)

// Reason is why a node has no key.
type Reason uint8

const (
	// Unmatched: no rule matched.
	Unmatched Reason = iota
	// Failed: a rule matched, and its key was an error or had an empty value.
	Failed
)

// String names the reason, as metrics have it.
func (r Reason) String() string {
	if r == Failed {
		return "key_failed"
	}
	return "unmatched"
}

// Error says that a node is refused, and which rules were tried (P5). It goes
// to the client, so it names rules as they are numbered, and no file.
type Error struct {
	Reason Reason
	Tried  []string // a line for each rule, bounded
	cause  error    // what has nothing to do with a rule
}

// A gRPC status travels in a header, of which clients take 8 KiB.
const (
	maxTried = 20
	maxLine  = 200
)

func newError(why Reason, v verdict) *Error {
	e := &Error{Reason: why}
	for i, s := range v.steps {
		if i == maxTried && len(v.steps) > maxTried+1 && why == Unmatched {
			e.Tried = append(e.Tried, fmt.Sprintf("and %d more", len(v.steps)-i))
			break
		}
		if why == Failed && s.did != keyFailed {
			continue // the rule that matched is what matters
		}
		line := s.rule.name + ": " + s.did.String()
		if s.err != nil {
			line += ": " + s.err.Error()
		}
		if len(line) > maxLine {
			line = strings.ToValidUTF8(line[:maxLine], "") + "…"
		}
		e.Tried = append(e.Tried, line)
	}
	return e
}

func (e *Error) Error() string {
	if e.cause != nil {
		return "no key: " + e.cause.Error()
	}
	what := "no aggregation rule matches this node"
	if e.Reason == Failed {
		what = "the aggregation rule that matches this node gives no key"
	}
	if len(e.Tried) == 0 {
		return what
	}
	return what + "; tried: " + strings.Join(e.Tried, "; ")
}

// outcome of a rule.
type outcome uint8

const (
	notTried outcome = iota // an earlier rule gave the key
	otherType
	noMatch
	matchFailed // taken for no match
	matched
	keyFailed // matched, and refuses
)

func (o outcome) String() string {
	return [...]string{"not tried", "not for this type", "no match", "no match, since its match failed", "match", "match, but its key failed"}[o]
}
