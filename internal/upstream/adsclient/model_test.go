package adsclient

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// modelOrigin is a group's stream and an origin that answers it at random. It fails the test where
// a request breaks a rule.
type modelOrigin struct {
	*protocolFixture
	rt       *rapid.T
	typ      xds.TypeURL
	interest snapshot.TypeInterest
	has      map[string]int // name -> the change that created it
	changes  int

	// What was sent on this stream.
	began, named, wild bool
	names              map[string]bool
	told               map[string]int
	due                map[string]bool // names to answer, changed or not
	answer             bool            // a response is due, even an empty one
	last               string          // the newest nonce
	open               map[string]bool // nonces of responses without a reply; true: the relay must NACK it
	wire               []proto.Message // requests that were sent and not read
	list               []string        // SotW: the names of the last of them
	replyTo            string          // SotW: the nonce of the last of them
	linear             bool            // SotW: see sotw
}

func (m *modelOrigin) forget() {
	m.began, m.named, m.wild, m.answer, m.last = false, false, false, false, ""
	m.names, m.told, m.due, m.open = map[string]bool{}, map[string]int{}, map[string]bool{}, map[string]bool{}
	m.wire, m.list, m.replyTo = nil, nil, ""
}

func (m *modelOrigin) full() bool              { return m.v == xds.SotW && m.typ == cds }
func (m *modelOrigin) covers(name string) bool { return m.wild || m.names[name] }
func (m *modelOrigin) version(of int) string   { return fmt.Sprint(m.origin, "-", of) }

// read returns the change that a version of this origin stands for, 0 for an empty one.
func (m *modelOrigin) read(version string) (change int) {
	if version == "" {
		return 0
	}
	if _, err := fmt.Sscanf(version, m.origin+"-%d", &change); err != nil {
		m.rt.Fatalf("P55: %q is not a version of origin %s", version, m.origin)
	}
	return change
}

func (m *modelOrigin) resource(name string, change int) res {
	return res{Name: name, Content: strings.Repeat("x", change), Version: m.version(change)}
}

// take returns a resource as the group holds it.
func (m *modelOrigin) take(name string, change int) *xds.Resource {
	r, err := xds.ParseResponse(xds.Delta, resp{Type: m.typ, Resources: []res{m.resource(name, change)}}.Encode(m.t, xds.Delta, "1"))
	if err != nil {
		m.rt.Fatal(err)
	}
	return r.Resources[0].Take(xds.TypeOf(m.typ), nil)
}

// replied handles a request that replies to a response.
func (m *modelOrigin) replied(nonce string, nacks bool) {
	if nacks != m.open[nonce] {
		m.rt.Fatalf("P18: NACKs %s: %v, and the response was bad: %v", nonce, nacks, m.open[nonce])
	}
	delete(m.open, nonce)
}

// sotw handles a request. Either only a request without a version is answered although nothing
// changed, as in go-control-plane's LinearCache. Or the names are answered that the request before
// did not list. In both cases the origin ignores a request that does not have the newest nonce.
func (m *modelOrigin) sotw(d *discoveryv3.DiscoveryRequest) {
	first := !m.began
	m.began = true
	if d.Node == nil {
		m.rt.Fatalf("P58: no node: %v", d)
	}
	if d.ResponseNonce != m.last {
		return // a response overtook it
	}
	if first && d.VersionInfo != "" {
		m.rt.Fatalf("P55: the first request has a version: %v", d)
	}
	m.read(d.VersionInfo)
	nacks := d.ErrorDetail != nil
	m.replied(d.ResponseNonce, nacks)
	names := map[string]bool{}
	wild := m.wild && len(d.ResourceNames) == 0 || len(d.ResourceNames) == 0 && !m.named && m.typ == cds
	all := d.VersionInfo == "" && !nacks
	for _, n := range d.ResourceNames {
		m.named = true
		if n == "*" {
			wild = true
			continue
		}
		if names[n] = true; m.linear && all || !m.linear && !m.names[n] {
			m.due[n] = true
		}
	}
	m.answer = m.answer || wild && (m.linear && all || !m.wild) || m.full() && len(m.due) > 0
	m.wild, m.names = wild, names
	maps.DeleteFunc(m.told, func(n string, _ int) bool { return !m.covers(n) })
	maps.DeleteFunc(m.due, func(n string, _ bool) bool { return !m.covers(n) })
}

func (m *modelOrigin) delta(d *discoveryv3.DeltaDiscoveryRequest) {
	first := !m.began
	m.began = true
	if first && len(d.ResourceNamesSubscribe) == 0 && m.typ == cds {
		m.wild, m.answer = true, true
	}
	if d.Node == nil || len(d.InitialResourceVersions) > 0 && !first {
		m.rt.Fatalf("P64: first %v: %v", first, d)
	}
	if d.ResponseNonce != "" {
		if _, open := m.open[d.ResponseNonce]; !open || len(d.ResourceNamesSubscribe)+len(d.ResourceNamesUnsubscribe) > 0 {
			m.rt.Fatalf("P64: a reply to nothing, or with names: %v", d)
		}
		m.replied(d.ResponseNonce, d.ErrorDetail != nil)
	}
	for n, version := range d.InitialResourceVersions {
		m.told[n] = m.read(version)
	}
	for _, n := range d.ResourceNamesSubscribe {
		switch _, brought := d.InitialResourceVersions[n]; {
		case n == "*":
			m.wild, m.answer = true, true
			continue
		case m.names[n] || slices.Contains(d.ResourceNamesUnsubscribe, n):
			m.rt.Fatalf("P64: %s is requested twice, or in both lists: %v", n, d)
		case !brought:
			m.due[n] = true
		}
		m.names[n] = true
	}
	for _, n := range d.ResourceNamesUnsubscribe {
		if m.wild = m.wild && n != "*"; n == "*" {
			clear(m.told)
		}
		delete(m.names, n)
		delete(m.told, n)
		delete(m.due, n)
	}
}

// transmit makes the relay send all requests that are due.
func (m *modelOrigin) transmit() {
	for r := m.next(); r != nil; r = m.next() {
		if m.v == xds.Delta {
			d := new(discoveryv3.DeltaDiscoveryRequest)
			mustUnmarshal(m.t, r.bytes(), d)
			m.wire = append(m.wire, d)
			continue
		}
		d := new(discoveryv3.DiscoveryRequest)
		mustUnmarshal(m.t, r.bytes(), d)
		if d.ResponseNonce != m.last {
			m.rt.Fatalf("P64: the newest nonce is %q: %v", m.last, d)
		}
		if d.ErrorDetail != nil && !slices.Equal(d.ResourceNames, m.list) {
			m.rt.Fatalf("P64: a NACK changes the list %v: %v", m.list, d)
		}
		adds := slices.ContainsFunc(d.ResourceNames, func(n string) bool { return !slices.Contains(m.list, n) })
		if adds && (d.VersionInfo != "" || d.ResponseNonce != m.replyTo) {
			m.rt.Fatalf("P55: a request with a version, or an ACK, adds names to %v: %v", m.list, d)
		}
		m.list, m.replyTo, m.wire = d.ResourceNames, d.ResponseNonce, append(m.wire, d)
	}
}

// readRequests handles the stream's requests, at most one of them if one is true.
func (m *modelOrigin) readRequests(one bool) (handled bool) {
	for m.transmit(); len(m.wire) > 0; m.transmit() {
		handled = true
		r := m.wire[0]
		m.wire = m.wire[1:]
		switch d := r.(type) {
		case *discoveryv3.DiscoveryRequest:
			m.sotw(d)
		case *discoveryv3.DeltaDiscoveryRequest:
			m.delta(d)
		}
		if one {
			break
		}
	}
	return handled
}

// sendResponse sends pending resources, or a part of them. It returns false if nothing is pending.
func (m *modelOrigin) sendResponse(part bool) bool {
	var names []string
	for n, change := range m.has {
		if m.covers(n) && (m.told[n] != change || m.due[n]) {
			names = append(names, n)
		}
	}
	for _, of := range []map[string]bool{m.due, m.toldNames()} {
		for n := range of {
			if m.has[n] == 0 {
				names = append(names, n)
			}
		}
	}
	slices.Sort(names)
	if names = slices.Compact(names); !m.answer && len(names) == 0 || len(m.open) > 0 && m.v == xds.SotW {
		return false
	}
	all := len(names)
	if part && !m.answer && !m.full() {
		names = names[:1+rapid.IntRange(0, len(names)-1).Draw(m.rt, "part")]
	}
	m.answer = false
	p := resp{Type: m.typ, Version: m.version(m.changes)}
	if len(names) < all {
		p.Version = m.version(0)
	}
	for _, n := range names {
		delete(m.due, n)
		if change := m.has[n]; change > 0 {
			m.told[n] = change
			p.Resources = append(p.Resources, m.resource(n, change))
		} else {
			delete(m.told, n)
			p.Removed = append(p.Removed, n)
		}
	}
	switch {
	case m.full():
		p.Resources = nil
		for _, n := range slices.Sorted(maps.Keys(m.has)) {
			if m.covers(n) {
				p.Resources = append(p.Resources, m.resource(n, m.has[n]))
			}
		}
	case m.v == xds.SotW && len(p.Resources) == 0 && len(names) > 0:
		return true // a deletion sends nothing
	}
	m.send(p, false)
	return true
}

func (m *modelOrigin) toldNames() map[string]bool {
	names := map[string]bool{}
	for n := range m.told {
		names[n] = true
	}
	return names
}

func (m *modelOrigin) send(p resp, bad bool) {
	v, _ := m.respond(p)
	if v.Accept == bad {
		m.rt.Fatalf("P18: taken %v, bad %v: %+v", v.Accept, bad, p)
	}
	m.last = fmt.Sprint(m.nonce)
	m.open[m.last] = bad
}

// ask changes the interest, passing through other values.
func (m *modelOrigin) ask(wishes ...snapshot.TypeInterest) {
	for _, m.interest = range wishes {
		m.set(m.interest)
		if !m.interest.Wildcard { // the group has no resources of other names, whoever brought them
			for r := range m.part().Resources {
				if !m.wants(r.Name) {
					m.sink.Builder(m.typ).Forget(m.interest.Names, r.Name)
				}
			}
			m.sink.Publish(m.typ)
		}
	}
	if !m.passInterest() {
		m.forget()
		m.reopen()
		m.transmit() // a stream sends its first request before its interest changes
	}
}

func (m *modelOrigin) wants(name string) bool {
	return m.interest.Wildcard || m.interest.Names.Has(name)
}

// part is the part of the group's resources that this stream answers.
func (m *modelOrigin) part() snapshot.Part { return m.sink.Newest(m.typ).Part(m.interest.Scope()) }

// compare compares the group with the origin, once all messages are exchanged.
func (m *modelOrigin) compare(names []string) {
	for _, n := range names {
		change, got := m.has[n], m.part().Resource(n)
		switch {
		case !m.wants(n):
		case change > 0:
			if !m.take(n, change).Same(got) {
				m.rt.Fatalf("P60: %s is %v, want that of change %d", n, got, change)
			}
		case m.v == xds.SotW && !m.full(): // P60: it may remain
		case got != nil, m.v == xds.Delta && !m.interest.Wildcard && !m.part().Known(n):
			m.rt.Fatalf("P65: %s is %v, and the origin said that there is none", n, got)
		}
	}
	if len(m.open) > 0 || m.interest.Wildcard && !m.part().Answered() {
		m.rt.Fatalf("without a reply: %v; the wildcard is answered: %v", m.open, m.part().Answered())
	}
}

// The origin sends anything, in any portions, and the interest changes meanwhile. The requests keep
// the rules. Nothing is deleted that the origin did not delete. At rest the group holds what the
// origin has. This holds over new streams to this origin or to another one, after NACKs, and
// beside resources of the group's other stream (P50).
func TestP55_P64_P65_Model(t *testing.T) {
	for _, typ := range []xds.TypeURL{cds, eds} {
		for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
			t.Run(fmt.Sprintf("%s/%v", xds.TypeOf(typ).Short, v), func(t *testing.T) {
				rapid.Check(t, func(rt *rapid.T) { runModel(t, rt, typ, v) })
			})
		}
	}
}

func runModel(t *testing.T, rt *rapid.T, typ xds.TypeURL, v xds.Variant) {
	m := &modelOrigin{protocolFixture: newProtocolFixture(t, v), rt: rt, typ: typ, has: map[string]int{"p": 1, "q": 1}, changes: 1, linear: rapid.Bool().Draw(rt, "linear")}
	m.forget()
	names := []string{"a", "b", "c", "p", "q"} // p and q are never removed
	name := rapid.SampledFrom(names)
	wish := rapid.Custom(func(rt *rapid.T) snapshot.TypeInterest {
		if rapid.Bool().Draw(rt, "wildcard") {
			return all(typ)
		}
		return named(typ, rapid.SliceOfNDistinct(name, 0, 4, rapid.ID[string]).Draw(rt, "names")...)
	})
	m.ask(wish.Draw(rt, "first"))
	for range rapid.IntRange(1, 40).Draw(rt, "steps") {
		var kept []string
		for _, n := range names[3:] {
			if m.part().Resource(n) != nil {
				kept = append(kept, n)
			}
		}
		switch rapid.SampledFrom([]string{"put", "put", "remove", "want", "request", "request", "respond", "respond", "respond", "bad", "connect", "other", "transmit", "transmit", "cross", "time"}).Draw(rt, "step") {
		case "put":
			m.changes++
			m.has[name.Draw(rt, "name")] = m.changes
		case "remove":
			m.changes++
			delete(m.has, rapid.SampledFrom(names[:3]).Draw(rt, "name"))
		case "want":
			m.ask(rapid.SliceOfN(wish, 1, 2).Draw(rt, "wishes")...)
			kept = nil
		case "request":
			m.readRequests(rapid.Bool().Draw(rt, "one"))
		case "respond":
			m.sendResponse(true)
		case "bad":
			if m.began && (len(m.open) == 0 || v == xds.Delta) {
				m.send(resp{Type: typ, Version: "bad", Resources: []res{m.resource("a", 1), m.resource("a", 1)}}, true)
			}
		case "connect":
			m.origin = rapid.SampledFrom([]string{"one", "two"}).Draw(rt, "origin")
			m.forget()
			m.connect()
			m.transmit()
		case "other":
			u := snapshot.Update{Type: typ, Origin: m.origin, Wildcard: !m.interest.Wildcard}
			if n := name.Draw(rt, "name"); rapid.Bool().Draw(rt, "removed") {
				u.Removed = []string{n}
			} else {
				u.Changed = []*xds.Resource{m.take(n, 0)}
			}
			m.apply(u)
		case "transmit":
			m.transmit()
		case "cross": // a response overtakes the requests that drop a name and list it again
			if was := m.interest; !was.Wildcard {
				n := name.Draw(rt, "name")
				m.ask(snapshot.TypeInterest{Type: typ, Names: was.Names.Remove(n)})
				m.transmit()
				m.ask(was)
				m.transmit()
				m.sendResponse(true)
				kept = nil
			}
		case "time": // no message takes as long
			m.readRequests(false)
			m.pass(time.Minute)
		}
		for _, n := range kept {
			if m.part().Resource(n) == nil {
				rt.Fatalf("P65: %s is deleted, and the origin did not delete it", n)
			}
		}
	}
	for range 20 {
		m.pass(time.Minute)
		for m.readRequests(false) || m.sendResponse(false) {
		}
	}
	m.compare(names)
}
