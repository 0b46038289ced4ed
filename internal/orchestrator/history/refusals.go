package history

import (
	"iter"
	"unicode/utf8"

	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/xds"
)

// Refusals count the clients that refuse something now, by the Nack.
type Refusals map[refused]int

// refused identifies a Nack of a key.
type refused struct {
	key                   xds.Key
	typ, version, message string
}

// CountRefusals reads all standings once. The result has an entry for each different refusal among
// them.
func CountRefusals(standings iter.Seq[inspect.Standing]) Refusals {
	out := make(Refusals)
	for at := range standings {
		if n := at.Nack; n != nil {
			out[refused{at.Key, clipped(string(at.Type), maxNackName), clipped(n.Version, maxNackName), clipped(n.Message, maxNackMessage)}]++
		}
	}
	return out
}

// Note sets StillRefusing in NACKs of a key.
func (r Refusals) Note(key xds.Key, nacks []Nack) {
	for i := range nacks {
		n := &nacks[i]
		n.StillRefusing = r[refused{key, n.Type, n.Version, n.Message}]
	}
}

// clipped is clip; it copies only a text that has to change.
func clipped(s string, n int) string {
	if len(s) <= n && utf8.ValidString(s) {
		return s
	}
	return clip(s, n)
}
