package check

import (
	"fmt"
	"slices"
	"sort"
	"time"
)

// part is a resource as the wildcard's clients get it, or those who name it:
// the two come by different streams from the origin.
type part struct {
	resource
	wild bool
}

// mark is how far a process was known to be with a part.
type mark struct {
	n   int
	t   time.Duration
	who string
	at  reading
}

// process is one life of a relay.
type process struct {
	relay string
	id    int

	began int              // event
	done  map[string][]int // by key: what each origin was known to have then
	store bool
	late  time.Duration // of the store
	last  *process      // the one before
	ended time.Duration

	marks map[part][]mark // in the order of events, each as far on as that before
	gave  map[string]bool // keys of which anybody was given anything
}

func (p *process) String() string { return fmt.Sprintf("%s#%d", p.relay, p.id) }

// mark notes that a client has got as far as at least at.
func (p *process) mark(of part, m mark) {
	marks := p.marks[of]
	if len(marks) > 0 {
		last := marks[len(marks)-1].at
		if m.at.within(last) {
			return
		}
		m.at = slices.Clone(m.at)
		m.at.raise(last)
	}
	p.marks[of] = append(marks, m)
}

// floor is how far on the process was with a part at event n, and who says so.
func (p *process) floor(j *journal, of part, n int) (reading, mark) {
	at, by := p.start(j, of)
	marks := p.marks[of]
	if i := sort.Search(len(marks), func(i int) bool { return marks[i].n > n }); i > 0 {
		at.raise(marks[i-1].at)
		by = marks[i-1]
	}
	return at, by
}

// start is how far on it was when it began: where its origins were then, since it
// had nothing but from them; with a store, where its predecessor was long enough
// before its end.
func (p *process) start(j *journal, of part) (reading, mark) {
	at := make(reading, len(j.origins))
	by := mark{n: p.began, who: "the start of " + p.String()}
	if !p.store {
		done := p.done[of.key]
		for o, l := range j.of(of.resource) {
			if done != nil {
				at[o] = l.at(done[o])
			}
		}
		return at, by
	}
	if p.last == nil {
		return at, by
	}
	before, _ := p.last.start(j, of)
	at.raise(before)
	marks := p.last.marks[of]
	if i := sort.Search(len(marks), func(i int) bool { return marks[i].t > p.last.ended-p.late }); i > 0 {
		at.raise(marks[i-1].at)
		by = marks[i-1]
	}
	return at, by
}
