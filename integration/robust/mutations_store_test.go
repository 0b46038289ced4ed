//go:build linux

package main

import (
	"slices"

	"xdsrelay/integration/robust/check"
)

// refuse alters the history of the process that a relay starts after this kill. The relay then
// refuses the client that first subscribes to the listener that always exists, although a client of
// its key had it before.
// No other client of the key gets an answer. It returns false if there is no such client.
func (x *index) refuse(killed int) bool {
	relay, process := x.events[killed].Relay, x.events[killed].Process
	had := x.had(killed)
	began := x.next(killed, func(e *check.Event) bool { return e.What == check.Began && e.Relay == relay })
	if began < 0 {
		return false
	}
	end := x.next(began, func(e *check.Event) bool {
		return e.Relay == relay && (e.What == check.Ending || e.What == check.Stored) // what is stored at that time counts
	})
	if end < 0 {
		end = len(x.events)
	}
	opened := make(map[[2]any]bool) // streams to that process, of clients that may be refused and have not subscribed yet
	asked := x.next(began, func(e *check.Event) bool {
		id := [2]any{e.Client, e.Stream}
		if e.What == check.Opening {
			opened[id] = e.Relay == relay && had[e.Key]
		}
		if e.What != check.Ask || !opened[id] {
			return false
		}
		delete(opened, id)
		return e.Type == check.Listener && slices.Contains(e.Names, apiListener)
	})
	if asked < 0 || asked > end {
		return false
	}
	client, stream := x.events[asked].Client, x.events[asked].Stream
	key := x.key[[2]any{client, stream}]
	refused := check.Event{What: check.Closed, Client: client, Stream: stream, Conn: "unknown", Error: "rpc error: code = Unavailable"}
	events := slices.Insert(slices.Clone(x.events), asked+1, refused)
	x.replace(slices.DeleteFunc(events, func(e check.Event) bool {
		switch e.What {
		case check.Receipt:
			return e.Relay == relay && e.Process > process && x.key[[2]any{e.Client, e.Stream}] == key
		case check.Closed:
			return e.Client == client && e.Stream == stream && e.Conn != refused.Conn
		}
		return false
	}))
	return true
}

// next returns the index of the first event after one for which ok holds, -1 if none.
func (x *index) next(after int, ok func(e *check.Event) bool) int {
	for i := after + 1; i < len(x.events); i++ {
		if ok(&x.events[i]) {
			return i
		}
	}
	return -1
}

// had returns the keys with a client that had the listener that always exists. The client had it
// from the last rest, after which it was stored, until this event killed the relay.
func (x *index) had(killed int) map[string]bool {
	relay, process := x.events[killed].Relay, x.events[killed].Process
	stored := killed
	for ; stored >= 0; stored-- {
		if e := &x.events[stored]; e.What == check.Stored && e.Relay == relay && e.Process == process {
			break
		}
	}
	rest := stored
	for rest >= 0 && x.events[rest].What != check.Rest {
		rest--
	}
	first := make(map[string]int) // touched by a fault
	closed := make(map[[2]any]int)
	of := make(map[[2]any]int) // of a stream: the process
	for i := range x.events {
		switch e := &x.events[i]; e.What {
		case check.Touched:
			if first[e.Conn] == 0 {
				first[e.Conn] = i
			}
		case check.Closed:
			closed[[2]any{e.Client, e.Stream}] = i
		case check.Receipt:
			if e.Relay == relay {
				of[[2]any{e.Client, e.Stream}] = e.Process
			}
		}
	}
	out := make(map[string]bool)
	for i := rest - 1; i >= 0 && x.events[i].What != check.Rest; i-- {
		e := &x.events[i]
		id := [2]any{e.Client, e.Stream}
		if e.What != check.Holds || e.Type != check.Listener || of[id] != process || closed[id] < killed {
			continue
		}
		if len(x.receipts[[4]any{e.Client, e.Stream, e.Type, apiListener}]) == 0 {
			continue // resumed state counts only once the client received something
		}
		conn := x.events[closed[id]].Conn
		if t := first[conn]; conn != "" && (t == 0 || t > killed) {
			out[e.Key] = true
		}
	}
	return out
}
