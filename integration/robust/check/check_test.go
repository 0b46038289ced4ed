package check

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"
)

// bad are histories that each break one rule, with the expected violation.
var bad = []struct {
	name, rule string
	play       func(s *script) (want []string)
}{
	{"a content that was never published", RulePublished, func(s *script) []string {
		s.publish("x", Cluster, "c", "one")
		n := s.open("C", 1, "a", Delta).ask(Cluster).get(Cluster, "c", "other")
		return []string{"client C, stream 1", `Cluster "c" of "k"`, at(n), "never published"}
	}},
	{"another key's content", RulePublished, func(s *script) []string {
		p := s.publishFor("x", "k2", Cluster, "c", "two")
		s.publish("x", Cluster, "c", "one")
		n := s.open("C", 1, "a", Delta).ask(Cluster).get(Cluster, "c", "two")
		return []string{"client C, stream 1", `Cluster "c" of "k"`, at(n), `of "c" of "k2"`, at(p)}
	}},
	{"back on the same stream", RuleOrder, func(s *script) []string {
		p := s.publish("x", Cluster, "c", "one")
		s.publish("x", Cluster, "c", "two")
		h := s.open("C", 1, "a", Delta).ask(Cluster)
		before := h.get(Cluster, "c", "two")
		n := h.get(Cluster, "c", "one")
		return []string{"client C, stream 1", `Cluster "c" of "k"`, at(n), "went back to one", at(p), at(before)}
	}},
	{"older than what is stored", RuleOrder, func(s *script) []string {
		s.restart("a", 2)
		s.publish("x", Cluster, "c", "one")
		s.publish("x", Cluster, "c", "two")
		h := s.open("C", 1, "a", Delta).ask(Cluster)
		h.process = 2
		h.get(Cluster, "c", "two")
		h.holds(Cluster, "c", "two")
		s.add(Event{What: Rest})
		before := s.add(Event{What: Stored, Relay: "a", Process: 2})
		h.close("1", "", true)
		s.restart("a", 3)
		d := s.open("D", 1, "a", Delta).ask(Cluster)
		d.process = 3
		n := d.get(Cluster, "c", "one")
		return []string{"client D, stream 1", at(n), "after what the store of a had", at(before)}
	}},
	{"a removal out of the blue", RuleRemoval, func(s *script) []string {
		p := s.publish("x", Cluster, "c", "one")
		h := s.open("C", 1, "a", Delta).ask(Cluster)
		before := h.get(Cluster, "c", "one")
		n := h.lose(Cluster, "c")
		return []string{"client C, stream 1", `Cluster "c" of "k"`, at(n), "there since " + at(p), at(before)}
	}},
	{"missing in a full state by wildcard", RuleRemoval, func(s *script) []string {
		p := s.publish("x", Cluster, "c", "one", "d", "one-d")
		h := s.open("C", 1, "a", SotW).ask(Cluster)
		h.get(Cluster, "c", "one", "d", "one-d")
		n := h.get(Cluster, "d", "one-d")
		return []string{`Cluster "c" of "k"`, at(n), at(p)}
	}},
	{"not the newest at rest", RuleNewest, func(s *script) []string {
		s.publish("x", Cluster, "c", "one")
		h := s.open("C", 1, "a", Delta).ask(Cluster)
		h.get(Cluster, "c", "one")
		p := s.publish("x", Cluster, "c", "two")
		n := h.holds(Cluster, "c", "one")
		return []string{"client C, stream 1", `Cluster "c" of "k"`, at(n), "has two since " + at(p)}
	}},
	{"nothing at rest", RuleNewest, func(s *script) []string {
		h := s.open("C", 1, "a", Delta).ask(Endpoint, "c")
		p := s.publish("x", Endpoint, "c", "one")
		n := h.holds(Endpoint)
		return []string{`ClusterLoadAssignment "c" of "k"`, at(n), "it has nothing", at(p)}
	}},
	{"a stream that broke untouched", RuleUnbroken, func(s *script) []string {
		s.publish("x", Cluster, "c", "one")
		h := s.open("C", 1, "a", Delta).ask(Cluster)
		h.get(Cluster, "c", "one")
		s.add(Event{What: Touched, Conn: "2"})
		n := h.close("1", "Unavailable", false)
		return []string{"client C, stream 1", at(n), "opened at " + at(h.opened)}
	}},
	{"refused although something is held", RuleUnbroken, func(s *script) []string {
		s.publish("x", Cluster, "c", "one")
		s.open("C", 1, "a", Delta).ask(Cluster).get(Cluster, "c", "one")
		h := s.open("D", 1, "a", Delta).ask(Endpoint, "c")
		n := h.close("1", "Unavailable", false)
		return []string{"client D, stream 1", at(n), at(h.opened)}
	}},
	{"a route without its cluster", RuleReference, func(s *script) []string {
		s.publish("x", Cluster, "c", "one")
		s.publish("x", Route, "r", "to-c")
		before := s.open("C", 1, "a", Delta).ask(Cluster).get(Cluster, "c", "one")
		h := s.open("D", 1, "a", Delta).ask(Cluster).ask(Route, "r")
		n := h.route("to-c", "c")
		return []string{"client D, stream 1", `RouteConfiguration "r" of "k"`, at(n), `cluster "c"`, at(before)}
	}},
	{"a process that died", RuleProcess, func(s *script) []string {
		n := s.add(Event{What: Ended, Relay: "a", Process: 1, Error: "exit status 2"})
		return []string{"a#1", at(n), "exit status 2"}
	}},
	{"a client that complains", RuleProtocol, func(s *script) []string {
		n := s.add(Event{What: Complaint, Client: "C", Error: "nonce repeated"})
		return []string{"client C", at(n), "nonce repeated"}
	}},
}

// Each rule has histories that break it. The violation names the rule, the client, the resource and
// the two times.
func TestWrongHistoriesAreFound(t *testing.T) {
	rules := make(map[string]bool)
	for _, tc := range bad {
		rules[tc.rule] = true
		t.Run(tc.name, func(t *testing.T) {
			s := begin()
			want := tc.play(s)
			found := Check(s.events)
			if len(found) != 1 || found[0].Known {
				t.Fatalf("found %v, want one violation", found)
			}
			text := found[0].String()
			for _, w := range append(want, tc.rule+": ") {
				if !strings.Contains(text, w) {
					t.Errorf("%q does not say %q", text, w)
				}
			}
		})
	}
	for _, rule := range []string{RulePublished, RuleOrder, RuleRemoval, RuleNewest, RuleUnbroken, RuleReference, RuleProcess, RuleProtocol} {
		if !rules[rule] {
			t.Errorf("no history breaks %q", rule)
		}
	}
}

// good are histories that look odd but break no rule.
var good = map[string]func(s *script){
	"the other relay lags behind": func(s *script) {
		s.publish("x", Cluster, "c", "one")
		s.publish("x", Cluster, "c", "two")
		h := s.open("C", 1, "a", Delta).ask(Cluster)
		h.get(Cluster, "c", "two")
		h.close("1", "", true)
		s.open("C", 2, "b", Delta).ask(Cluster).get(Cluster, "c", "one")
	},
	"two origins with the same in turns": func(s *script) {
		for _, o := range []string{"x", "y"} {
			s.publish(o, Cluster, "c", "one")
			s.publish(o, Cluster, "c", "two")
		}
		h := s.open("C", 1, "a", Delta).ask(Cluster)
		for range 3 {
			h.get(Cluster, "c", "two")
			h.get(Cluster, "c", "one")
		}
	},
	"the other origin does not have it": func(s *script) {
		s.publish("x", Cluster, "c", "x1")
		s.publish("y", Cluster, "d", "y1")
		h := s.open("C", 1, "a", SotW).ask(Cluster)
		h.get(Cluster, "c", "x1")
		h.get(Cluster, "d", "y1")
	},
	"a name comes again after it was removed": func(s *script) {
		s.publish("x", Cluster, "c", "one")
		s.publish("x", Cluster, "c", "")
		s.publish("x", Cluster, "c", "one")
		h := s.open("C", 1, "a", Delta).ask(Cluster)
		h.get(Cluster, "c", "one")
		h.lose(Cluster, "c")
		h.get(Cluster, "c", "one")
	},
	"missing because it is not requested any more": func(s *script) {
		s.publish("x", Cluster, "c", "one", "d", "one-d")
		h := s.open("C", 1, "a", SotW).ask(Cluster, "c", "d")
		h.get(Cluster, "c", "one", "d", "one-d")
		h.ask(Cluster, "d").ask(Cluster, "c", "d")
		h.get(Cluster, "d", "one-d")
	},
	"a route without its cluster, while clusters wait for a complete answer": func(s *script) {
		s.publish("x", Cluster, "c", "one")
		s.open("C", 1, "b", SotW).ask(Cluster).get(Cluster, "c", "one")
		s.restart("a", 2)
		s.publish("x", Cluster, "c", "one", "d", "one-d")
		d := s.open("D", 1, "a", Delta).ask(Cluster)
		d.process = 2
		d.get(Cluster, "c", "one", "d", "one-d")
		h := s.open("C", 2, "a", SotW).ask(Cluster).ask(Route, "r")
		h.process = 2
		s.publish("x", Route, "r", "to-d")
		h.route("to-d", "d")
	},
}

func TestGoodHistoriesPass(t *testing.T) {
	for name, play := range good {
		t.Run(name, func(t *testing.T) {
			s := begin()
			play(s)
			if found := Check(s.events); len(found) > 0 {
				t.Errorf("found %v", found)
			}
		})
	}
}

// Reading returns what was written, in order and with times that do not decrease.
func TestHistoryIsReadAsItWasWritten(t *testing.T) {
	s := begin()
	s.publish("x", Cluster, "c", "one")
	s.open("C", 1, "a", Delta).ask(Cluster, "c").route("r", "c")
	var buf bytes.Buffer
	now := time.Unix(1, 0)
	w := NewWriter(&buf, func() time.Time { now = now.Add(10 * time.Millisecond); return now })
	for _, e := range s.events {
		w.Add(e)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	got, err := Read(&buf)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, s.events) {
		t.Errorf("read %+v\nwant %+v", got, s.events)
	}
	if _, err := Read(strings.NewReader(`{"n":1}` + "\n" + `{"n":2,"nonsense":3}`)); err == nil {
		t.Error("nonsense is read")
	}
}

// A client may go back once from the wildcard's copy to the name's own, but never to stored
// content.
func TestKnownStepBack(t *testing.T) {
	for _, stored := range []bool{false, true} {
		s := begin()
		s.publish("x", Cluster, "c", "one")
		s.publish("x", Cluster, "c", "two")
		w := s.open("W", 1, "a", Delta).ask(Cluster, "*")
		w.get(Cluster, "c", "two")
		h := s.open("C", 1, "a", Delta).ask(Cluster, "c")
		h.get(Cluster, "c", "two")
		n := h.get(Cluster, "c", "one")
		if stored {
			s.events[n-1].Text = "x (last known good)"
		}
		h.get(Cluster, "c", "two")
		if found := Check(s.events); len(found) != 1 || found[0].Rule != RuleOrder || found[0].Known == stored {
			t.Errorf("stored %t: found %+v", stored, found)
		}
		h.get(Cluster, "c", "one")
		if found := Check(s.events); len(found) != 2 || found[1].Known != stored {
			t.Errorf("stored %t, twice: found %+v", stored, found)
		}
	}
}

// Without a client that has the wildcard's copy, no step back is excused.
func TestNoStepBackWithoutTheWildcard(t *testing.T) {
	s := begin()
	s.publish("x", Cluster, "c", "one")
	s.publish("x", Cluster, "c", "two")
	h := s.open("C", 1, "a", Delta).ask(Cluster, "c")
	h.get(Cluster, "c", "two")
	h.get(Cluster, "c", "one")
	if found := Check(s.events); len(found) != 1 || found[0].Rule != RuleOrder || found[0].Known {
		t.Errorf("found %+v", found)
	}
}
