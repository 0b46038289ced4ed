package check

import (
	"cmp"
	"strings"
	"testing"
)

// refusal is a history in which a relay with a store is killed. When it serves again it refuses a
// client, that of conn 2.
type refusal struct {
	// killed is the part of the script from the time when everything is stored until the kill.
	// after is the part in the next process.
	killed func(s *script, h *scriptedStream)
	quiet  bool // the kill is not announced
	after  func(s *script)
	names  []string // first subscribed names; empty: all
	typ    string
	key    string
	early  bool // it subscribes before the relay serves again
	left   bool // the client that had it has left, sooner or later
	then   func(s *script)
}

func (r refusal) play() (*script, int) {
	s := begin()
	s.restart("a", 2)
	s.publish("x", Cluster, "c", "one", "d", "one-d")
	s.publish("y", Cluster, "c", "one", "d", "one-d")
	for _, origin := range []string{"x", "y"} {
		s.publish(origin, Endpoint, "c", "one-e", "d", "two-e")
	}
	b := s.open("B", 1, "b", Delta).ask(Endpoint, "d")
	b.get(Endpoint, "d", "two-e")
	b.holds(Endpoint, "d", "two-e")
	h := s.open("C", 1, "a", Delta).ask(Cluster).ask(Endpoint, "c")
	h.process = 2
	h.get(Cluster, "c", "one", "d", "one-d")
	h.get(Endpoint, "c", "one-e")
	h.holds(Cluster, "c", "one", "d", "one-d")
	h.holds(Endpoint, "c", "one-e")
	s.add(Event{What: Rest})
	s.add(Event{What: Stored, Relay: "a", Process: 2})
	if r.killed != nil {
		r.killed(s, h)
	}
	if !r.quiet {
		s.add(Event{What: Ending, Relay: "a", Process: 2})
	}
	s.add(Event{What: Touched, Conn: "1"})
	conn := "1"
	if r.left {
		conn = ""
	}
	h.close(conn, "Unavailable", r.left)
	var d *scriptedStream
	ask := func() {
		d = s.open("D", 1, "a", SotW)
		s.events[d.opened-1].Key = cmp.Or(r.key, "k")
		d.ask(cmp.Or(r.typ, Cluster), r.names...).ask(Cluster)
	}
	if r.early {
		ask()
	}
	s.restart("a", 3)
	if r.after != nil {
		r.after(s)
	}
	if !r.early {
		ask()
	}
	n := d.close("2", "rpc error: code = Unavailable", false)
	b.close("4", "", true)
	if r.then != nil {
		r.then(s)
	}
	return s, n
}

// A stored route may refer to a cluster that the store does not have, even if all clients had it at
// the last rest. A route of an origin may not.
func TestReferencesOfTheStore(t *testing.T) {
	for name, tc := range map[string]struct {
		texts [2]string // of clusters and route
		found int
	}{
		"both of the origin":        {[2]string{"x", "x"}, 1},
		"both of the store":         {[2]string{"x (last known good)", "x (last known good)"}, 0},
		"the clusters of the store": {[2]string{"x (last known good)", "x"}, 0},
		"the route of the store":    {[2]string{"x", "x (last known good)"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := begin()
			s.restart("a", 2)
			s.publish("x", Cluster, "c", "one", "d", "one-d")
			s.publish("x", Route, "r", "to-c")
			s.add(Event{What: Rest})
			h := s.open("C", 1, "a", Delta).ask(Cluster).ask(Route, "r")
			h.process = 2
			n := h.get(Cluster, "d", "one-d")
			s.events[n-1].Text = tc.texts[0]
			n = h.route("to-c", "c")
			s.events[n-1].Text = tc.texts[1]
			found := Check(s.events)
			if len(found) != tc.found || tc.found > 0 && found[0].Rule != RuleReference {
				t.Errorf("found %v", found)
			}
		})
	}
}

// A route may come before the clusters if no client was sent all of them yet, for example because
// all others subscribe by name. It may not once a client was.
func TestReferencesBeforeAllClustersWereThere(t *testing.T) {
	for name, tc := range map[string]struct {
		names []string // names that the other client subscribes to; empty: all
		found int
	}{"all others ask by name": {[]string{"c"}, 0}, "another asks for all": {nil, 1}} {
		t.Run(name, func(t *testing.T) {
			s := begin()
			s.restart("a", 2)
			s.publish("x", Cluster, "c", "one", "d", "one-d")
			s.publish("x", Route, "r", "to-c")
			s.add(Event{What: Rest})
			g := s.open("G", 1, "a", Delta).ask(Cluster, tc.names...).ask(Route, "r")
			g.process = 2
			g.get(Cluster, "c", "one")
			g.route("to-c", "c")
			h := s.open("C", 1, "a", Delta).ask(Cluster).ask(Route, "r")
			h.process = 2
			h.route("to-c", "c")
			found := Check(s.events)
			if len(found) != tc.found || tc.found > 0 && found[0].Rule != RuleReference {
				t.Errorf("found %v", found)
			}
		})
	}
}

// A client is not refused what the relay's store is known to have: what a client held at the last
// rest and subscribed to until the relay was killed.
func TestRefusedAlthoughItIsStored(t *testing.T) {
	for name, r := range map[string]refusal{
		"all":                         {},
		"a name":                      {names: []string{"e", "d"}},
		"a cut of another connection": {killed: func(s *script, _ *scriptedStream) { s.add(Event{What: Touched, Conn: "3"}) }},
		"it was removed later":        {then: func(s *script) { s.publish("y", Cluster, "c", "", "d", "") }},
		"what changed":                {killed: func(s *script, _ *scriptedStream) { s.publish("x", Cluster, "c", "two") }},
		"what is there beside what went": {killed: func(s *script, _ *scriptedStream) {
			s.publish("y", Cluster, "c", "")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s, n := r.play()
			found := Check(s.events)
			if len(found) != 1 || found[0].Rule != RuleUnbroken {
				t.Fatalf("found %v, want one violation", found)
			}
			text := found[0].String()
			for _, w := range []string{"client D, stream 1", "client C, stream 1, had it at the last rest", "a#2 was killed", at(n)} {
				if !strings.Contains(text, w) {
					t.Errorf("%q does not say %q", text, w)
				}
			}
		})
	}
	for name, r := range map[string]refusal{
		"its client had left":      {killed: func(_ *script, h *scriptedStream) { h.close("1", "", true) }},
		"it may have been cut off": {killed: func(s *script, _ *scriptedStream) { s.add(Event{What: Touched, Conn: "1"}) }},
		"it was given up": {names: []string{"d"}, killed: func(_ *script, h *scriptedStream) {
			h.drop(Cluster, "*")
		}},
		"it was given up for a moment": {typ: Endpoint, names: []string{"c"}, killed: func(_ *script, h *scriptedStream) {
			h.drop(Endpoint, "c").ask(Endpoint, "c").get(Endpoint, "c", "one-e")
		}},
		"it was removed": {killed: func(s *script, _ *scriptedStream) {
			s.publish("x", Cluster, "c", "")
			s.publish("y", Cluster, "d", "")
		}},
		"it was removed since":     {names: []string{"c"}, after: func(s *script) { s.publish("y", Cluster, "c", "") }},
		"it came back":             {names: []string{"c"}, after: func(s *script) { s.publish("y", Cluster, "c", ""); s.publish("y", Cluster, "c", "one") }},
		"it asks for another name": {names: []string{"e"}},
		"it asks for another type": {typ: Route, names: []string{"c"}},
		"it came after the rest": {typ: Route, names: []string{"r"}, killed: func(s *script, h *scriptedStream) {
			s.publish("x", Route, "r", "one-r")
			s.publish("y", Route, "r", "one-r")
			h.ask(Route, "r").get(Route, "r", "one-r")
		}},
		"another relay's client had it":  {typ: Endpoint, names: []string{"d"}},
		"only a name of all was held":    {typ: Endpoint, names: []string{"*"}},
		"it is of another key":           {key: "k2"},
		"it asked before":                {early: true},
		"its client may have left":       {left: true},
		"the time of its end is unknown": {quiet: true},
		"after another process": {after: func(s *script) { // it may have stored fewer names
			s.add(Event{What: Ending, Relay: "a", Process: 3})
			s.restart("a", 4)
		}},
		"no client had it at another rest": {after: func(s *script) {
			s.add(Event{What: Stored, Relay: "a", Process: 3})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := r.play()
			if found := Check(s.events); len(found) > 0 {
				t.Errorf("found %v", found)
			}
		})
	}
}
