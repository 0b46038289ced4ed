package orchestrator

import (
	"iter"
	"unicode/utf8"

	"xdsrelay/internal/fanout"
	"xdsrelay/internal/xds"
)

// Refusals count who refuses now, by what.
type Refusals map[refused]int

// refused is what a row of NACKs is about.
type refused struct {
	key                   xds.Key
	typ, version, message string
}

// CountRefusals reads all of the standings once. It is as large as there are different
// refusals among them.
func CountRefusals(standings iter.Seq[fanout.Standing]) Refusals {
	out := make(Refusals)
	for at := range standings {
		if n := at.Nack; n != nil {
			out[refused{at.Key, clipped(string(at.Type), maxNackName), clipped(n.Version, maxNackName), clipped(n.Message, maxNackMessage)}]++
		}
	}
	return out
}

// Note notes in a key's rows how many refuse them still.
func (r Refusals) Note(key xds.Key, rows []NackStatus) {
	for i := range rows {
		n := &rows[i]
		n.StillRefusing = r[refused{key, n.Type, n.Version, n.Message}]
	}
}

// clipped is clip, without a copy of what is as it is to be.
func clipped(s string, n int) string {
	if len(s) <= n && utf8.ValidString(s) {
		return s
	}
	return clip(s, n)
}
