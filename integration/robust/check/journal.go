package check

import (
	"slices"
	"sort"
	"time"
)

// resource is one name of a type under a key.
type resource struct{ key, typ, name string }

// state is an origin's content of a resource from an event on.
type state struct {
	n       int
	t       time.Duration
	content string // empty: nothing
}

// timeline is the sequence of an origin's states of one resource. In the first state there is no
// content.
type timeline []state

// first returns the earliest state from index i on that has this content and was published before
// event n.
func (l timeline) first(i int, content string, n int) (int, bool) {
	for ; i < len(l) && l[i].n < n; i++ {
		if l[i].content == content {
			return i, true
		}
	}
	return 0, false
}

// at returns the index of the state at event n.
func (l timeline) at(n int) int {
	return sort.Search(len(l), func(i int) bool { return l[i].n > n }) - 1
}

// journal has everything that the origins have published so far.
type journal struct {
	origins   []string // in the order of their first event
	timelines map[resource][]timeline
	names     map[[2]string][]string                // of a key and type
	ever      map[string]map[resource]time.Duration // by content: when it is first published, even if that is later
	// done has the event up to which each origin is known to have published, by key.
	done map[string][]int
}

func newJournal(events []Event) *journal {
	j := &journal{timelines: make(map[resource][]timeline), names: make(map[[2]string][]string),
		done: make(map[string][]int), ever: make(map[string]map[resource]time.Duration)}
	// Vectors have one element for each origin. All origins are known from the beginning.
	for i := range events {
		e := &events[i]
		if e.What != Publish {
			continue
		}
		if !slices.Contains(j.origins, e.Origin) {
			j.origins = append(j.origins, e.Origin)
		}
		for name, content := range e.Resources {
			if j.ever[content] == nil {
				j.ever[content] = make(map[resource]time.Duration)
			}
			if r := (resource{e.Key, e.Type, name}); j.ever[content][r] == 0 {
				j.ever[content][r] = e.T
			}
		}
	}
	return j
}

// publish appends to an origin's timelines.
func (j *journal) publish(e *Event) {
	o := slices.Index(j.origins, e.Origin)
	for name, content := range e.Resources {
		r := resource{e.Key, e.Type, name}
		timelines := j.of(r)
		if last := timelines[o][len(timelines[o])-1]; last.content == content {
			continue
		}
		timelines[o] = append(timelines[o], state{e.N, e.T, content})
	}
}

// of returns a resource's timelines, one for each origin.
func (j *journal) of(r resource) []timeline {
	timelines := j.timelines[r]
	if timelines == nil {
		timelines = make([]timeline, len(j.origins))
		for o := range timelines {
			timelines[o] = timeline{{}}
		}
		j.timelines[r] = timelines
		of := [2]string{r.key, r.typ}
		j.names[of] = append(j.names[of], r.name)
	}
	return timelines
}

// confirm records that an origin has everything that was published until then.
func (j *journal) confirm(e *Event) {
	if o := slices.Index(j.origins, e.Origin); o >= 0 {
		j.known(e.Key)[o] = e.Upto
	}
}

func (j *journal) known(key string) []int {
	done := j.done[key]
	if done == nil {
		done = make([]int, len(j.origins))
		j.done[key] = done
	}
	return done
}

// reading is one interpretation of the received contents: an index in each origin's timeline.
type reading []int

// follow returns every possible interpretation of a content that comes after these readings. It
// omits those that forbid more than another one. No result means that the content is impossible.
func (j *journal) follow(before []reading, r resource, content string, n int) []reading {
	var after []reading
	for _, old := range before {
		for o, l := range j.of(r) {
			if i, ok := l.first(old[o], content, n); ok {
				next := slices.Clone(old)
				next[o] = i
				after = append(after, next)
			}
		}
	}
	return minimal(after)
}

// minimal drops readings that are at least as far in all timelines as another one.
func minimal(all []reading) []reading {
	var out []reading
	for i, r := range all {
		if !slices.ContainsFunc(all[:i], func(o reading) bool { return o.within(r) }) &&
			!slices.ContainsFunc(all[i+1:], func(o reading) bool { return o.within(r) && !slices.Equal(o, r) }) {
			out = append(out, r)
		}
	}
	return out
}

// within reports whether r is nowhere further than o.
func (r reading) within(o reading) bool {
	for i := range r {
		if r[i] > o[i] {
			return false
		}
	}
	return true
}

// raise moves r up to o where o is further.
func (r reading) raise(o reading) {
	for i := range r {
		r[i] = max(r[i], o[i])
	}
}

// sure returns what holds in each of the readings: the minimum of each timeline.
func sure(all []reading) reading {
	out := slices.Clone(all[0])
	for _, r := range all[1:] {
		for i := range out {
			out[i] = min(out[i], r[i])
		}
	}
	return out
}
