package orchestrator

import (
	"testing"
	"testing/synctest"
	"time"

	"xdsrelay/internal/upstream"
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

// What the old stream said of what is ahead, and is not to be cached, goes with it:
// it is not brought out again once the new one is away.
func TestP63_NotBroughtOutOnceItsStreamHasEnded(t *testing.T) {
	travels(t, "a=1", func(t *testing.T, m *travel) {
		if m.wild {
			return
		}
		m.first.bring(t, cds, false, resource(t, cds, "b", "2"), resource(t, cds, "c", "2"))
		m.second.bring(t, cds, false, uncached(t, cds, "b", "1"), resource(t, cds, "c", "1"))
		m.is("ahead", "1 2 2 ?", 2)
		m.ended(m.second)
		m.first.sink.Status(upstream.Status{Failed: true})
		time.Sleep(15 * time.Second)
		synctest.Wait()
		m.is("the new one is away", "1 2 1 ?", 2)
	})
}
