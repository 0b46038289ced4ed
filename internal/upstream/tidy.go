package upstream

import (
	"maps"
	"slices"

	"xdsrelay/internal/xds"
)

// maxSpent bounds the types of a stream that are remembered though nobody wants
// them any more.
const maxSpent = 64

// spent: nothing of the type is wanted or asked, and nothing remains to be said.
func (t *typeTalk) spent() bool {
	return t.want.empty() && t.asked.empty() && !t.ending && !t.judging &&
		len(t.lapsed) == 0 && len(t.replies) == 0 && !t.sotw.ackDue
}

// tidy forgets what is spent: of earlier streams all, of this one what can be
// forgotten. Whether a wildcard had ended has to be known; in SotW the newest
// nonce as well, since a request without it is stale (P64); and all are kept for
// a while, so that a response that crossed the last request is acknowledged. It
// reports whether what has to be known is within bounds: else the stream is to
// be opened anew.
func (t *talk) tidy() bool {
	spent := 0
	t.forget(func(tt *typeTalk) bool {
		if !tt.spent() {
			return false
		}
		delete(t.memory, tt.typ.URL)
		if tt.requested {
			spent++
		}
		return !tt.requested
	})
	maps.DeleteFunc(t.memory, func(typ xds.TypeURL, _ *remembered) bool { return t.byURL[typ] == nil })
	if spent > maxSpent && !t.nonces {
		t.forget(func(tt *typeTalk) bool {
			gone := tt.spent() && !tt.ended
			if gone {
				spent--
			}
			return gone
		})
	}
	return spent <= maxSpent
}

// forget drops types from this stream.
func (t *talk) forget(gone func(*typeTalk) bool) {
	t.types = slices.DeleteFunc(t.types, func(tt *typeTalk) bool {
		if !gone(tt) {
			return false
		}
		delete(t.byURL, tt.typ.URL)
		return true
	})
}
