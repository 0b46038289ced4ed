package check

import (
	"time"
)

// script writes a history by hand, with one event every ten milliseconds.
type script struct{ events []Event }

func (s *script) add(e Event) int {
	e.N = len(s.events) + 1
	e.T = time.Duration(e.N) * 10 * time.Millisecond
	s.events = append(s.events, e)
	return e.N
}

// at formats the time of an event as in messages.
func at(n int) string { return clock(time.Duration(n) * 10 * time.Millisecond) }

// begin returns a script with two relays. The first has a running process.
func begin() *script {
	s := new(script)
	s.add(Event{What: Run, Seed: 1, Upstream: map[string]string{"a": Delta, "b": SotW}})
	s.add(Event{What: Began, Relay: "a", Process: 1})
	s.add(Event{What: Began, Relay: "b", Process: 1})
	return s
}

// publish makes an origin publish contents of a type for key k.
func (s *script) publish(origin, typ string, contents ...string) int {
	return s.publishFor(origin, "k", typ, contents...)
}

func (s *script) publishFor(origin, key, typ string, contents ...string) int {
	e := Event{What: Publish, Origin: origin, Key: key, Type: typ, Resources: pairs(contents)}
	n := s.add(e)
	s.add(Event{What: Published, Origin: origin, Key: key, Upto: n})
	return n
}

// restart starts another process of a relay, with a store.
func (s *script) restart(relay string, process int) {
	s.add(Event{What: Ended, Relay: relay, Process: process - 1})
	s.add(Event{What: Began, Relay: relay, Process: process, Store: true})
}

// pairs parses pairs of a name and a content.
func pairs(list []string) map[string]string {
	out := make(map[string]string)
	for i := 0; i < len(list); i += 2 {
		out[list[i]] = list[i+1]
	}
	return out
}

// scriptedStream is a client's stream in a script.
type scriptedStream struct {
	s       *script
	client  string
	stream  int
	relay   string
	process int
	opened  int
}

func (s *script) open(client string, stream int, relay, variant string) *scriptedStream {
	n := s.add(Event{What: Opening, Client: client, Stream: stream, Relay: relay, Key: "k", Variant: variant, Fresh: stream == 1})
	return &scriptedStream{s, client, stream, relay, 1, n}
}

func (h *scriptedStream) ask(typ string, names ...string) *scriptedStream {
	h.s.add(Event{What: Ask, Client: h.client, Stream: h.stream, Type: typ, Names: names})
	return h
}

func (h *scriptedStream) get(typ string, contents ...string) int {
	return h.s.add(Event{What: Receipt, Client: h.client, Stream: h.stream, Relay: h.relay, Process: h.process, Type: typ, Resources: pairs(contents)})
}

func (h *scriptedStream) lose(typ string, names ...string) int {
	return h.s.add(Event{What: Receipt, Client: h.client, Stream: h.stream, Relay: h.relay, Process: h.process, Type: typ, Removed: names})
}

func (h *scriptedStream) route(content string, clusters ...string) int {
	return h.s.add(Event{What: Receipt, Client: h.client, Stream: h.stream, Relay: h.relay, Process: h.process, Type: Route,
		Resources: map[string]string{"r": content}, Refs: map[string][]string{"r": clusters}})
}

func (h *scriptedStream) holds(typ string, contents ...string) int {
	return h.s.add(Event{What: Holds, Client: h.client, Stream: h.stream, Key: "k", Type: typ, Resources: pairs(contents)})
}

func (h *scriptedStream) close(conn, err string, asked bool) int {
	return h.s.add(Event{What: Closed, Client: h.client, Stream: h.stream, Conn: conn, Asked: asked, Error: err})
}
