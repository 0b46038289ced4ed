package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// onDemand is a prefix of names that a wildcard does not cover.
const onDemand = "od-"

// ask is a stream's subscription to one type.
type ask struct {
	wild  bool
	named bool // it has named a resource before
	names map[string]bool
}

func (a *ask) wants(name string) bool {
	return a.names[name] || a.wild && !strings.HasPrefix(name, onDemand)
}

// answer answers a request with the site's resources, as a simple, correct control plane does. The
// caller holds site.mu.
func (u *upstream) answer(r request) {
	a := u.asks[r.kind]
	first := a == nil
	if first {
		a = &ask{names: make(map[string]bool)}
		u.asks[r.kind] = a
	}
	before := maps.Clone(a.names)
	wild := a.wild
	if u.delta {
		a.wild = wild || first && len(r.names)+len(r.dropped) == 0 && !r.kind.noLegacy()
	} else {
		if r.err != "" {
			return
		}
		clear(a.names)
		a.wild = len(r.names) == 0 && !a.named && !r.kind.noLegacy()
	}
	for _, n := range r.names {
		if a.named = true; n == "*" {
			a.wild = true
		} else {
			a.names[n] = true
		}
	}
	var out []string
	for _, n := range r.dropped {
		if n == "*" {
			a.wild = false
			continue
		}
		if a.names[n] && a.wild {
			out = append(out, u.site.entry(r.kind, n, a.wants(n)))
		}
		delete(a.names, n)
	}
	began := a.wild && !wild
	for name := range u.site.held[r.kind] {
		newly := a.names[name] && (!before[name] || u.delta && slices.Contains(r.names, name))
		if newly || began && a.wants(name) {
			out = append(out, u.site.entry(r.kind, name, true))
		}
	}
	if u.delta && !u.site.silent {
		for _, n := range r.names {
			if _, there := u.site.held[r.kind][n]; !there && n != "*" {
				out = append(out, "-"+n)
			}
		}
		for n := range r.resumed {
			if _, there := u.site.held[r.kind][n]; !there && a.wants(n) {
				out = append(out, "-"+n)
			}
		}
	}
	switch full := !u.delta && r.kind.full(); {
	case full && (first || !maps.Equal(before, a.names) || wild != a.wild):
		u.post(r.kind, u.everything(r.kind)...)
	case !full && (len(out) > 0 || began):
		slices.Sort(out)
		u.post(r.kind, slices.Compact(out)...)
	}
}

// entry returns the text for a name in a response: its content, or its removal. The caller holds
// site.mu.
func (s *site) entry(k kind, name string, wanted bool) string {
	value, there := s.held[k][name]
	if !there || !wanted {
		return "-" + name
	}
	return name + "=" + value
}

// everything returns all that the stream subscribes to of a type. The caller holds site.mu.
func (u *upstream) everything(k kind) []string {
	var out []string
	for name := range u.site.held[k] {
		if u.asks[k].wants(name) {
			out = append(out, u.site.entry(k, name, true))
		}
	}
	return out
}

// post sends a response under the site's next version. The caller holds site.mu.
func (u *upstream) post(k kind, things ...string) {
	u.site.serial++
	version := fmt.Sprintf("v%d", u.site.serial)
	_ = u.grpc.SendMsg(u.response(k, version, things...)) // fails when the stream ended
}

// put changes the site's resources, all at once: "a=1", "-b". Each stream that subscribes to any of
// them gets one response. It returns the response's version; empty: nothing was sent.
func (s *site) put(t testing.TB, k kind, things ...string) (version string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[k] == nil {
		s.held[k] = make(map[string]string)
	}
	for _, thing := range things {
		name, value, gone := parse(thing)
		if gone {
			delete(s.held[k], name)
		} else {
			s.held[k][name] = value
		}
	}
	for _, u := range s.streams {
		a := u.asks[k]
		if a == nil || u.closed || s.byHand[k] {
			continue
		}
		var out []string
		wanted := false
		for _, thing := range things {
			name, _, gone := parse(thing)
			if a.wants(name) {
				wanted = true
				if !gone || u.delta {
					out = append(out, thing)
				}
			}
		}
		switch {
		case wanted && !u.delta && k.full():
			u.post(k, u.everything(k)...)
		case len(out) > 0:
			u.post(k, out...)
		default:
			continue
		}
		version = fmt.Sprintf("v%d", s.serial)
	}
	return version
}
