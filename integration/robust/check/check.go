package check

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// The names of rules in violations.
const (
	RulePublished = "published"
	RuleOrder     = "order"
	RuleRemoval   = "removal"
	RuleNewest    = "newest"
	RuleUnbroken  = "unbroken"
	RuleReference = "reference"
	RuleProcess   = "process"
	RuleProtocol  = "protocol"
)

// Violation is one rule that the relay broke.
type Violation struct {
	Rule     string
	Client   string
	Stream   int
	Resource string // type, key and name, if known
	N        int    // the event that shows it
	At       time.Duration
	Against  time.Duration // when the contradicted event was
	Text     string
	// Known: it is reported, but not counted against the relay. See "What order allows".
	Known bool
}

func (v Violation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: event %d at %s", v.Rule, v.N, clock(v.At))
	if v.Client != "" {
		fmt.Fprintf(&b, ": client %s, stream %d", v.Client, v.Stream)
	}
	if v.Resource != "" {
		b.WriteString(": " + v.Resource)
	}
	b.WriteString(": " + v.Text)
	return b.String()
}

func clock(t time.Duration) string { return fmt.Sprintf("%.3fs", t.Seconds()) }

// Check checks a history against the rules. It returns no violation if the history keeps them.
func Check(events []Event) []Violation {
	c := &checker{
		journal:   newJournal(events),
		processes: make(map[string][]*process),
		streams:   make(map[streamID]*stream),
		clusters:  make(map[string]map[string]bool),
		received:  make(map[string]map[[2]string]string),
		rested:    make(map[string][]int),
		stored:    make(map[string]map[part][]mark),
		kept:      make(map[string]*kept),
		wild:      make(map[[2]string]bool),
		conns:     make(map[streamID]string),
		first:     make(map[string]int),
	}
	for i := range events {
		switch e := &events[i]; e.What {
		case Closed:
			c.conns[streamID{e.Client, e.Stream}] = e.Conn
		case Touched:
			if c.first[e.Conn] == 0 {
				c.first[e.Conn] = e.N
			}
		}
	}
	for i := range events {
		c.event(&events[i])
	}
	c.finish()
	slices.SortStableFunc(c.found, func(a, b Violation) int { return a.N - b.N })
	return c.found
}

type streamID struct {
	client string
	stream int
}

// checker reads a history from its beginning to its end.
type checker struct {
	*journal
	upstream  map[string]string
	processes map[string][]*process // by relay, in their order
	streams   map[streamID]*stream
	clusters  map[string]map[string]bool      // that a client has, over its streams
	received  map[string]map[[2]string]string // by client, type and name: the last one received, over its streams
	rested    map[string][]int                // by key: what each origin had at the last rest
	wild      map[[2]string]bool              // keys and types that a client requested by the wildcard (P50)
	ends      []*Event                        // of streams, checked when all touches are known
	found     []Violation

	atRest []*Event // what was held at the last rest
	restN  int
	stored map[string]map[part][]mark // by relay
	kept   map[string]*kept           // by relay

	// The fields below are known from the beginning.
	conns map[streamID]string // of streams that reported it
	first map[string]int      // by connection: the event in which it was first touched
}

func (c *checker) event(e *Event) {
	switch e.What {
	case Run:
		c.upstream = e.Upstream
	case Publish:
		c.publish(e)
	case Published:
		c.confirm(e)
	case Began:
		c.began(e)
	case Ending:
		c.kept[e.Relay].prune(c, e)
	case Ended:
		if e.Error != "" {
			c.found = append(c.found, Violation{Rule: RuleProcess, N: e.N, At: e.T, Text: fmt.Sprintf("%s#%d ended by itself: %s", e.Relay, e.Process, e.Error)})
		}
	case Opening:
		c.opening(e)
	case Ask:
		c.ask(e)
	case Receipt:
		c.receipt(e)
	case Closed:
		c.ends = append(c.ends, e)
		if s := c.stream(e); s != nil {
			s.closedN = e.N
			if p := c.newest(s.relay); p != nil {
				s.given = p.gave[s.key]
				s.stored = c.kept[s.relay].serves(c, s, p)
			}
		}
	case Holds:
		if len(c.atRest) > 0 && c.atRest[0].N < c.restN {
			c.atRest = nil
		}
		c.atRest = append(c.atRest, e)
		c.holds(e)
	case Stored:
		c.keep(e)
		c.kept[e.Relay] = c.keeps(e)
	case Rest:
		c.restN = e.N
		for key, done := range c.done {
			c.rested[key] = slices.Clone(done)
		}
	case Complaint:
		c.found = append(c.found, Violation{Rule: RuleProtocol, Client: e.Client, Stream: e.Stream, N: e.N, At: e.T, Text: e.Error})
	}
}

func (c *checker) began(e *Event) {
	p := &process{relay: e.Relay, id: e.Process, began: e.N, store: e.Store,
		done: make(map[string][]int), marks: make(map[part][]mark), gave: make(map[string]bool)}
	for key, done := range c.done {
		p.done[key] = slices.Clone(done)
	}
	c.processes[e.Relay] = append(c.processes[e.Relay], p)
}

func (c *checker) process(relay string, id int) *process {
	for _, p := range c.processes[relay] {
		if p.id == id {
			return p
		}
	}
	return nil
}

func (c *checker) newest(relay string) *process {
	all := c.processes[relay]
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1]
}

func (c *checker) stream(e *Event) *stream { return c.streams[streamID{e.Client, e.Stream}] }

// violate records a violation on a stream.
func (c *checker) violate(rule string, s *stream, e *Event, typ, name string, against time.Duration, format string, args ...any) {
	what := ""
	if typ != "" {
		what = fmt.Sprintf("%s %q of %q", typ[strings.LastIndexByte(typ, '.')+1:], name, s.key)
	}
	c.found = append(c.found, Violation{Rule: rule, Client: s.client, Stream: s.id, Resource: what, N: e.N, At: e.T,
		Against: against, Text: fmt.Sprintf(format, args...)})
}

// finish checks the ends of streams.
func (c *checker) finish() {
	for _, e := range c.ends {
		s := c.stream(e)
		if s == nil || e.Asked || e.Silent || c.first[e.Conn] > 0 {
			continue
		}
		// P53: nothing of its key was held, and no origin was reachable.
		if !s.answered && !s.given && s.stored == nil && strings.Contains(e.Error, "Unavailable") {
			continue
		}
		if s.stored != nil {
			r := s.stored.resource
			c.violate(RuleUnbroken, s, e, r.typ, r.name, s.opened, "opened at %s to %s, it was refused, though the relay's store had what it asks for: %s had it at the last rest, and asked for it when %s was killed: %s",
				clock(s.opened), s.relay, s.stored.by, s.stored.by.process, e.Error)
			continue
		}
		c.violate(RuleUnbroken, s, e, "", "", s.opened, "opened at %s to %s, it ended without any fault on its connection %s: %s",
			clock(s.opened), s.relay, e.Conn, e.Error)
	}
}
