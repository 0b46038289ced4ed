package history

import (
	"container/list"
	"sync"
)

// rowList has rows of all keys within a bound. Its lock is taken while that of a key is held.
type rowList struct {
	max    int64 // bytes
	slotOf func(*nackRow) *slot

	mu    sync.Mutex
	order list.List // of *nackRow, the one used longest ago first
	seq   uint64    // the newest one's
	bytes int64
}

// slot is the place of a row in a rowList. The list's lock protects it.
type slot struct {
	at   *list.Element // nil: the row is not in the list
	seq  uint64        // grows with each use
	cost int64         // bytes
}

// use moves a row to the end of the list, or adds it. It returns the rows that the bound removed
// from the list for it. Their keys have to drop them.
func (l *rowList) use(r *nackRow, cost int64) (out []*nackRow) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.slotOf(r)
	if s.at == nil {
		s.at = l.order.PushBack(r)
	} else {
		l.order.MoveToBack(s.at)
	}
	l.seq++
	l.bytes += cost - s.cost
	s.seq, s.cost = l.seq, cost
	for l.bytes > l.max && l.order.Len() > 1 {
		oldest := l.order.Front().Value.(*nackRow)
		l.removeLocked(l.slotOf(oldest))
		out = append(out, oldest)
	}
	return out
}

func (l *rowList) remove(r *nackRow) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.slotOf(r); s.at != nil {
		l.removeLocked(s)
	}
}

func (l *rowList) removeLocked(s *slot) {
	l.order.Remove(s.at)
	l.bytes -= s.cost
	*s = slot{}
}

func (l *rowList) has(r *nackRow) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.slotOf(r).at != nil
}

// placed is a row and its place.
type placed struct {
	row *nackRow
	seq uint64
}

// below returns the rows below a place, the newest first; 0: all.
func (l *rowList) below(before uint64) (out []placed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for e := l.order.Back(); e != nil; e = e.Prev() {
		r := e.Value.(*nackRow)
		if seq := l.slotOf(r).seq; before == 0 || seq < before {
			out = append(out, placed{r, seq})
		}
	}
	return out
}
