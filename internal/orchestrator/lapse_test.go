package orchestrator

import (
	"testing"
	"testing/synctest"
	"time"

	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
)

// The part had nothing when it departed, and the new stream has not spoken yet:
// what the old one brings meanwhile may expire.
func TestP62_ExpiresBeforeTheNewStreamSpeaks(t *testing.T) {
	travels(t, "", func(t *testing.T, m *travel) {
		if !m.wild {
			return // there was nothing to wait for
		}
		m.second.bring(t, cds, true, living(t, cds, "b", "1", 3*time.Second))
		m.is("it came", "? 1", 2)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		m.is("it has expired", "? ?", 2)
		m.says(m.second, "a=1")
		m.says(m.first, "a=1")
		m.is("moved", "1 ?", 1)
	})
}

// takesOver hands over what another origin, to which a stream has turned, says of
// CDS.
func (m *travel) takesOver(f *feed, rs ...*xds.Resource) {
	m.t.Helper()
	f.hand(m.t, xds.Update{Type: cds, Origin: "other", Wildcard: m.wild, Received: time.Now(), Changed: rs, TakesOver: true})
}

// The old stream turns to another origin: what it brought and is not to be cached
// goes, but not what the new stream brought first, which still runs.
func TestP63_TheOldStreamTurnsToAnotherOrigin(t *testing.T) {
	travels(t, "a=1", func(t *testing.T, m *travel) {
		if m.wild {
			return // nothing is ahead of what leaves nothing open
		}
		m.second.bring(t, cds, false, uncached(t, cds, "p", "1"))
		m.first.bring(t, cds, false, uncached(t, cds, "b", "2"))
		m.is("ahead", "1 2 ? 1", 2)
		m.takesOver(m.second, resource(t, cds, "a", "1"))
		m.is("it turned", "1 2 ? ?", 2)
	})
}

// So does the new one: what it brought first goes with its stream, and the old
// one's word counts again.
func TestP63_TheNewStreamTurnsToAnotherOrigin(t *testing.T) {
	travels(t, "a=1", func(t *testing.T, m *travel) {
		if m.wild {
			return
		}
		m.first.bring(t, cds, false, uncached(t, cds, "b", "2"), uncached(t, cds, "c", "2"))
		m.second.bring(t, cds, false, resource(t, cds, "b", "1"))
		m.is("ahead", "1 2 2 ?", 2)
		m.takesOver(m.first, uncached(t, cds, "c", "2"))
		m.is("it turned", "1 1 2 ?", 2)
		m.takesOver(m.first, resource(t, cds, "a", "1"), resource(t, cds, "b", "1"))
		m.is("moved", "1 1 ? ?", 1)
	})
}

// What the old stream said of what is ahead, and is not to be cached, goes with it:
// it is not brought out again once the new one is away.
func TestP63_NotBroughtOutOnceItsStreamHasEnded(t *testing.T) {
	for _, turns := range []bool{true, false} {
		travels(t, "a=1", func(t *testing.T, m *travel) {
			if m.wild {
				return
			}
			m.first.bring(t, cds, false, resource(t, cds, "b", "2"), resource(t, cds, "c", "2"))
			m.second.bring(t, cds, false, uncached(t, cds, "b", "1"), resource(t, cds, "c", "1"))
			m.is("ahead", "1 2 2 ?", 2)
			if turns {
				m.takesOver(m.second, resource(t, cds, "a", "1"))
			} else {
				m.ended(m.second)
			}
			m.first.sink.Status(upstream.Status{Failed: true})
			time.Sleep(15 * time.Second)
			synctest.Wait()
			m.is("the new one is away", "1 2 1 ?", 2)
		})
	}
}
