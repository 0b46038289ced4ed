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

// String returns the reason's name in metrics.
func (r Reason) String() string {
	if r == Failed {
		return "key_failed"
	}
	return "unmatched"
}

// Error is the refusal of a node, with the rules that were tried (P5). Clients get its text, so it
// names rules by number, and no files.
type Error struct {
	Reason Reason
	Tried  []string // a line for each rule, up to maxTried
	cause  error    // an error that belongs to no rule
}

// A gRPC status travels in a header, and clients accept 8 KiB of headers.
const (
	maxTried = 20
	maxLine  = 200
)

func newError(why Reason, v evaluation) *Error {
	e := &Error{Reason: why}
	for i, s := range v.steps {
		if i == maxTried && len(v.steps) > maxTried+1 && why == Unmatched {
			e.Tried = append(e.Tried, fmt.Sprintf("and %d more", len(v.steps)-i))
			break
		}
		if why == Failed && s.did != keyFailed {
			continue // only the rule that matched matters
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

// outcome is the result of trying a rule.
type outcome uint8

const (
	notTried outcome = iota // an earlier rule gave the key
	otherType
	noMatch
	matchFailed // counts as no match
	matched
	keyFailed // matched, and refuses the node
)

func (o outcome) String() string {
	return [...]string{"not tried", "not for this type", "no match", "no match, since its match failed", "match", "match, but its key failed"}[o]
}
