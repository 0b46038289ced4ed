package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// The tests in this file ask real origins, through the relay and, where that says something,
// directly. The relay has a second origin, which is scripted. It has other content, and no test
// lets the relay use it.

// The first answers of an Envoy's types.
func TestP11_RealOriginsFirstAnswers(t *testing.T) {
	askEach(t, true, func(w *world) {
		w.origin.set(w, "1", web("1", nil))
		w.viewer("one").starts(web("1", nil))
		if !w.direct {
			w.viewer("two").starts(web("1", nil))
			w.healthy()
		}
	})
}

// A change of each type reaches clients.
func TestP33_RealOriginsChanges(t *testing.T) {
	askEach(t, true, func(w *world) {
		w.origin.set(w, "1", web("1", nil))
		one := w.viewer("one")
		one.starts(web("1", nil))
		now := web("1", nil)
		for i, k := range []kind{cds, eds, lds, rds} {
			now[k] = strings.ReplaceAll(now[k], "1", "2")
			w.origin.set(w, fmt.Sprint(i+2), now)
			one.has(k, now[k])
		}
	})
}

// A cluster and a route that are added later, and then asked for.
func TestP22_RealOriginsLaterNames(t *testing.T) {
	askEach(t, true, func(w *world) {
		w.origin.set(w, "1", web("1", nil))
		one := w.viewer("one")
		one.starts(web("1", nil))
		now := web("1", map[kind]string{cds: "a=1 b=1 c=1", eds: "a=1 b=1 c=1", lds: "l=2", rds: "r=1 s=1"})
		w.origin.set(w, "2", now)
		one.has(cds, now[cds])
		one.sub(eds, "c")
		one.has(eds, now[eds])
		one.has(lds, now[lds])
		one.sub(rds, "s")
		one.has(rds, now[rds])
	})
}

// A client that asks for the types in reverse, while the origin changes all of them quickly
// (go-control-plane#526).
func TestP19_RealOriginsQuickChanges(t *testing.T) {
	askEach(t, true, func(w *world) {
		w.origin.set(w, "1", web("1", nil))
		one := w.viewer("one")
		one.sub(rds, "r")
		one.sub(lds)
		one.sub(eds, "a", "b")
		one.sub(cds)
		last := ""
		for i := range 30 {
			last = fmt.Sprint(i + 2)
			w.origin.set(w, last, web(last, nil))
		}
		for _, k := range []kind{cds, eds, lds, rds} {
			one.has(k, web(last, nil)[k])
		}
	})
}

// Names that the origin has already, and that a client asks for later.
func TestP22_RealOriginsMoreNames(t *testing.T) {
	askEach(t, true, func(w *world) {
		w.origin.set(w, "1", web("1", nil))
		one := w.viewer("one")
		one.sub(cds)
		one.has(cds, "a=1 b=1")
		one.sub(eds, "a")
		if !w.direct {
			w.origin.await(w, "a request for a", func(all []request) bool {
				return slices.Contains(wanted(all, w.up == "delta", eds), "a")
			})
		}
		one.sub(eds, "b")
		one.has(eds, "a=1 b=1")
	})
}

// A name that a client asks for before the origin has it.
func TestP57_RealOriginsNamesBeforeTheirContent(t *testing.T) {
	askEach(t, true, func(w *world) {
		w.origin.set(w, "1", web("1", nil))
		one := w.viewer("one")
		one.starts(web("1", nil))
		one.sub(eds, "c")
		w.origin.await(w, "a request for c", func(all []request) bool {
			return slices.Contains(wanted(all, w.up == "delta", eds), "c")
		})
		w.origin.set(w, "2", web("1", map[kind]string{cds: "a=1 b=1 c=1", eds: "a=1 b=1 c=1"}))
		one.has(eds, "a=1 b=1 c=1")
	})
}

// One client's name that does not exist has no effect on the endpoints of others.
func TestP16_RealOriginsMissingNames(t *testing.T) {
	askEach(t, false, func(w *world) {
		w.origin.set(w, "1", web("1", nil))
		one, two := w.viewer("one"), w.viewer("two")
		one.starts(web("1", nil))
		two.sub(eds, "missing")
		w.origin.await(w, "a request for the missing name", func(all []request) bool {
			return slices.Contains(wanted(all, w.up == "delta", eds), "missing")
		})
		w.origin.set(w, "2", web("1", map[kind]string{eds: "a=2 b=2"}))
		one.has(eds, "a=2 b=2")
	})
}

// A name that nobody wants any more, and that another client wants after linger. Directly, the same
// client wants it again.
func TestP64_RealOriginsNamesThatComeBack(t *testing.T) {
	askEach(t, true, func(w *world) {
		w.origin.set(w, "1", web("1", nil))
		if w.direct {
			one := w.viewer("one")
			one.starts(web("1", nil))
			one.drops(eds, "b")
			one.sub(eds, "b")
			one.has(eds, "a=1 b=1")
			return
		}
		keeper, guest := w.viewer("keeper"), w.viewer("guest")
		keeper.sub(cds)
		keeper.has(cds, "a=1 b=1")
		keeper.sub(eds, "a")
		guest.starts(web("1", nil))
		guest.reconnect() // it does not come back
		w.origin.await(w, "an end of the request for b", func(all []request) bool {
			return !slices.Contains(wanted(all, w.up == "delta", eds), "b")
		})
		w.viewer("next").starts(web("1", nil))
	})
}

// The removal of a cluster, which clients still name, does not delay other endpoints.
func TestP52_RealOriginsRemovedClusters(t *testing.T) {
	askEach(t, true, func(w *world) {
		w.origin.set(w, "1", web("1", nil))
		one, two := w.viewer("one"), w.viewer("two")
		one.starts(web("1", nil))
		if !w.direct {
			two.starts(web("1", nil))
		}
		w.origin.set(w, "2", web("1", map[kind]string{cds: "a=1", eds: "a=1"}))
		if !w.direct { // clients keep the cluster until removal_delay ends
			began := time.Now()
			w.origin.set(w, "3", web("1", map[kind]string{cds: "a=1", eds: "a=2"}))
			one.has(eds, "a=2 b=1")
			if took := time.Since(began); took > time.Second {
				w.Errorf("the endpoints of the other cluster took %v", took)
			}
		}
		one.has(cds, "a=1")
		one.drops(eds, "b")
		w.origin.set(w, "4", web("1", map[kind]string{cds: "a=1", eds: "a=3"}))
		one.has(eds, "a=3")
		w.origin.set(w, "5", web("1", map[kind]string{eds: "a=4 b=4"})) // it comes back
		one.has(cds, "a=1 b=1")
		one.sub(eds, "b")
		one.has(eds, "a=4 b=4")
	})
}

// Streams that end although nothing changed are no failure: the key stays where it is. Some origins
// answer at least the wildcard of a new stream, so clients of names alone are a case of their own.
func TestP55_RealOriginsUnchangedReconnects(t *testing.T) {
	askEach(t, false, func(w *world) {
		w.origin.set(w, "1", web("1", nil))
		w.reconnects(func(v *viewer, content map[kind]string) { v.starts(content) })
	})
}

// See TestP55_RealOriginsUnchangedReconnects.
func TestP55_RealOriginsUnchangedReconnectsOfNames(t *testing.T) {
	askEach(t, false, func(w *world) {
		w.origin.set(w, "1", web("1", nil))
		w.reconnects(func(v *viewer, content map[kind]string) { v.wants(eds, content[eds]) })
	})
}

func (w *world) reconnects(start func(*viewer, map[kind]string)) {
	w.Helper()
	one := w.viewer("one")
	start(one, web("1", nil))
	answers := one.counts()
	for n := range 4 {
		w.origin.await(w, fmt.Sprintf("endpoints on stream %d", n+1), func(all []request) bool {
			return slices.ContainsFunc(all, func(r request) bool { return r.stream > n && r.kind == eds })
		})
		w.origin.end(w)
	}
	now := web("1", map[kind]string{eds: "a=2 b=2"})
	w.origin.set(w, "2", now)
	one.has(eds, now[eds])
	answers[eds]++
	if got := one.counts(); !maps.Equal(got, answers) {
		w.Errorf("the client has received %v responses, want %v", got, answers)
	}
	start(w.viewer("two"), now)
	w.healthy()
}

// counts is how many responses of each type the client has received.
func (v *viewer) counts() map[kind]int {
	out := make(map[kind]int)
	for k, s := range v.states {
		out[k] = s.answers
	}
	return out
}

// Connections that the origin closes because of their age are no failure either.
func TestP55_RealOriginsMaxConnectionAge(t *testing.T) {
	t.Parallel()
	for _, l := range libraries {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			origin := l.aging(t)
			for _, at := range places() {
				if !at.ads || at.up != at.down {
					continue
				}
				t.Run(at.up, func(t *testing.T) {
					t.Parallel()
					cache := "snapshot"
					if l == jcp {
						cache = ""
					}
					control := newTestControl(t)
					w := worldOf(t, dialect{l, cache}, at, origin, false)
					w.through(own(t, at.up, realConfig(at.up, origin.addr, control.addr), origin.addr, control.addr), control)
					w.origin.set(w, "1", web("1", nil))
					one := w.viewer("one")
					one.wants(eds, "a=1 b=1")
					w.origin.await(w, "four streams", func(all []request) bool {
						return slices.ContainsFunc(all, func(r request) bool { return r.stream == 4 })
					})
					w.origin.set(w, "2", web("1", map[kind]string{eds: "a=2 b=1"}))
					one.has(eds, "a=2 b=1")
					w.healthy()
					w.over()
				})
			}
		})
	}
}

// An origin that restarts with other content under the same version.
func TestP55_RealOriginsSameVersion(t *testing.T) {
	askEach(t, false, func(w *world) {
		w.origin.set(w, "1", web("1", nil))
		one := w.viewer("one")
		one.starts(web("1", nil))
		w.origin.restart(w, "1", web("2", nil))
		for _, k := range []kind{cds, eds, lds, rds} {
			one.has(k, web("2", nil)[k])
		}
		w.viewer("two").starts(web("2", nil))
		w.healthy()
	})
}

// An origin removes a cluster while no stream is open.
func TestP55_RealOriginsRemovedDuringAnOutage(t *testing.T) {
	askEach(t, false, func(w *world) {
		w.origin.set(w, "1", web("1", nil))
		one := w.viewer("one")
		one.starts(web("1", nil))
		w.origin.restart(w, "2", web("1", map[kind]string{cds: "a=1", eds: "a=1", lds: "l=2"}))
		one.has(lds, "l=2")
		one.has(cds, "a=1")
	})
}

// A snapshot that depends on the node: all types are answered.
func TestP58_RealOriginsNodeGroups(t *testing.T) {
	askEach(t, false, func(w *world) {
		w.origin.node = "one"
		w.origin.set(w, "1", web("1", nil))
		w.viewer("one").starts(web("1", nil))
		w.viewer("two").starts(web("1", nil)) // the origin sees the node of the first
	})
}

// A client asks for a type that the origin does not know. Some origins end the stream because of
// it. Other clients of the key notice nothing.
func TestP16_RealOriginsUnknownTypes(t *testing.T) {
	askEach(t, false, func(w *world) {
		w.origin.set(w, "1", web("1", nil))
		one, odd := w.viewer("one"), w.viewer("odd")
		one.starts(web("1", nil))
		odd.sub(srds)
		w.awaitUnknown()
		for i := 2; i < 5; i++ {
			now := web("1", map[kind]string{eds: fmt.Sprintf("a=%d b=1", i)})
			w.origin.set(w, fmt.Sprint(i), now)
			one.has(eds, now[eds])
			w.viewer(fmt.Sprint("late", i)).starts(now)
		}
		w.steady()
	})
}

// The client with the unknown type is the first of the key.
func TestP16_RealOriginsUnknownTypesFirst(t *testing.T) {
	askEach(t, false, func(w *world) {
		w.origin.set(w, "1", web("1", nil))
		odd, one := w.viewer("odd"), w.viewer("one")
		odd.sub(srds)
		w.awaitUnknown()
		one.starts(web("1", nil))
		w.origin.set(w, "2", web("1", map[kind]string{eds: "a=2 b=1"}))
		one.has(eds, "a=2 b=1")
		w.steady()
	})
}

// steady waits until only streams that ask for nothing but the unknown type end.
func (w *world) steady() {
	w.Helper()
	w.origin.await(w, "a stream without the unknown type", func(all []request) bool {
		newest, last := 0, 0
		for _, r := range all {
			if last = max(last, r.stream); r.kind != srds {
				newest = max(newest, r.stream)
			}
		}
		return last == 1 || last >= newest+2
	})
}

func (w *world) awaitUnknown() {
	w.Helper()
	w.origin.await(w, "a request for the unknown type", func(all []request) bool {
		return slices.ContainsFunc(all, func(r request) bool { return r.kind == srds })
	})
}
