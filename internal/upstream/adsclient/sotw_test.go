package adsclient

import (
	"strings"
	"testing"
	"time"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

func TestP64_SotWNothingIsRequestedBetweenAResponseAndItsACK(t *testing.T) {
	r := newProtocolFixture(t, xds.SotW)
	r.want(named(rds, "a"))
	r.sent("RDS [a]")
	p, fault := xds.ParseResponse(xds.SotW, resp{Type: rds, Version: "1", Resources: clusters("a")}.Encode(t, xds.SotW, "7"))
	if v, err := r.conversation.Receive(p, fault, r.now); err != nil || !v.Accept {
		t.Fatal(v, err)
	}
	r.want(named(rds, "a", "b"))
	r.sent()
	r.conversation.Applied(p)
	r.sent("RDS [a] version 1 nonce 7", "RDS [a b] nonce 7")
}

func TestP18_UnattributableResponseEndsTheStream(t *testing.T) {
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		r := newProtocolFixture(t, v)
		r.want(named(eds, "a"))
		r.next()
		if _, _, err := r.raw([]byte{0x0a, 0x50, 'x'}); err == nil {
			t.Error("garbage was taken")
		}
	}
}

// waits checks for how long the conversation waits without an event; 0: for ever.
func (r *protocolFixture) waits(want time.Duration) {
	r.t.Helper()
	at := r.conversation.WakeAt()
	if want == 0 && !at.IsZero() || want > 0 && !at.Equal(r.now.Add(want)) {
		r.t.Fatalf("waits until %v, it is %v, want %v", at, r.now, want)
	}
}

// go-control-plane's LinearCache answers a request with its current version only if a listed
// resource changed since.
func TestP55_SotWAddedNames(t *testing.T) {
	begin := func() *protocolFixture {
		r := newProtocolFixture(t, xds.SotW)
		r.want(named(rds, "a"))
		r.sent("RDS [a]")
		r.respond(resp{Type: rds, Version: "1", Resources: clusters("a")})
		r.sent("RDS [a] version 1 nonce 1")
		return r
	}
	t.Run("answered", func(t *testing.T) {
		r := begin()
		r.want(named(rds, "a", "b"))
		r.sent("RDS [a b] nonce 1")
		r.respond(resp{Type: rds, Version: "2", Resources: clusters("a", "b")})
		r.sent("RDS [a b] version 2 nonce 2")
		r.waits(0)
	})
	t.Run("unanswered", func(t *testing.T) {
		r := begin()
		r.want(named(rds, "a", "b"))
		r.sent("RDS [a b] nonce 1")
		r.pass(time.Second / 2)
		r.want(named(rds, "a", "b", "c"))
		r.sent("RDS [a b c] nonce 1")
		r.want(named(rds, "a", "b"))
		r.sent("RDS [a b] nonce 1") // an answer is still awaited
		r.waits(time.Second)
		r.pass(time.Second)
		r.sent("RDS [a b] version 1 nonce 1")
		r.waits(0)
		r.want(named(rds, "a", "b", "d"))
		r.sent("RDS [a b d] nonce 1")
		r.waits(time.Second)
	})
	t.Run("no longer wanted", func(t *testing.T) {
		r := begin()
		r.want(named(rds, "a", "b"), named(eds, "x"))
		r.sent("RDS [a b] nonce 1", "EDS [x]")
		r.want(named(eds, "x"))
		r.sent("RDS [] version 1 nonce 1")
		r.waits(0)
	})
	t.Run("a NACK", func(t *testing.T) {
		r := begin()
		r.connect()
		r.sent("RDS [a]")
		r.respond(resp{Type: rds, Version: "2", Resources: clusters("a", "a")})
		r.sent("RDS [a] version 1 nonce 1 NACK") // the version accepted last
		r.waits(0)
	})
}

// A response that overtakes a request makes it stale. The origin then takes the ACK for the first
// request with the names, so the request is repeated after it.
func TestP55_SotWAddedNamesOvertaken(t *testing.T) {
	for what, c := range map[string]struct {
		answer   resp
		requests []string
	}{
		"a push":              {resp{Version: "2", Resources: clusters("a")}, []string{"RDS [a b] version 2 nonce 2", "RDS [a b] nonce 2"}},
		"an empty push":       {resp{Version: "2"}, []string{"RDS [a b] version 2 nonce 2", "RDS [a b] nonce 2"}},
		"the answer":          {resp{Version: "2", Resources: clusters("b")}, []string{"RDS [a b] version 2 nonce 2"}},
		"an answer without b": {resp{Version: "1", Resources: clusters("a")}, []string{"RDS [a b] version 1 nonce 2"}},
		"a bad push":          {resp{Version: "2", Resources: clusters("a", "a")}, []string{"RDS [a b] version 1 nonce 2 NACK", "RDS [a b] nonce 2"}},
	} {
		t.Run(what, func(t *testing.T) {
			r := newProtocolFixture(t, xds.SotW)
			r.want(named(rds, "a"))
			r.flush()
			r.respond(resp{Type: rds, Version: "1", Resources: clusters("a")})
			r.flush()
			r.want(named(rds, "a", "b"))
			r.sent("RDS [a b] nonce 1")
			c.answer.Type = rds
			r.respond(c.answer)
			r.sent(c.requests...)
			if len(c.requests) > 1 {
				r.respond(resp{Type: rds, Version: "3", Resources: clusters("a")}) // b does not exist
				r.sent("RDS [a b] version 3 nonce 3")
			}
			r.waits(0)
		})
	}

	// The answer to one request overtakes the next one.
	r := newProtocolFixture(t, xds.SotW)
	r.want(named(rds, "a"))
	r.flush()
	r.respond(resp{Type: rds, Version: "1", Resources: clusters("a")})
	r.flush()
	r.want(named(rds, "a", "b"))
	r.want(named(rds, "a", "b"))
	r.sent("RDS [a b] nonce 1")
	r.want(named(rds, "a", "b", "c"))
	r.sent("RDS [a b c] nonce 1")
	r.respond(resp{Type: rds, Version: "1", Resources: clusters("a", "b")})
	r.sent("RDS [a b c] version 1 nonce 2", "RDS [a b c] nonce 2")
}

// Another relay brought b. It is gone if a response lacks it that certainly answers a request with b.
func TestP65_NamesThatAnotherRelayBrought(t *testing.T) {
	brought := func(names ...string) snapshot.TypeInterest {
		i := named(cds, names...)
		i.Brought = xds.NewNameSet("b")
		return i
	}
	a := func(version string) resp { return resp{Type: cds, Version: version, Resources: clusters("a")} }
	for what, c := range map[string]struct {
		first  snapshot.TypeInterest
		before []resp // the answers to it
		second snapshot.TypeInterest
		answer resp
		is     snapshot.Presence
	}{
		"first request":            {brought("a", "b"), nil, brought("a", "b"), a("1"), snapshot.Absent},
		"first request, there":     {brought("a", "b"), nil, brought("a", "b"), resp{Type: cds, Version: "1", Resources: clusters("a", "b")}, snapshot.Present},
		"never brought":            {named(cds, "a", "b"), nil, named(cds, "a", "b"), a("1"), snapshot.Pending},
		"two requests":             {brought("a", "c"), nil, brought("a", "b", "c"), a("1"), snapshot.Pending},
		"added":                    {named(cds, "a"), []resp{a("1")}, brought("a", "b"), a("1"), snapshot.Absent},
		"added, but it is a push":  {named(cds, "a"), []resp{a("1")}, brought("a", "b"), a("2"), snapshot.Pending},
		"added together":           {named(cds, "a"), []resp{a("1")}, brought("a", "b", "c"), resp{Type: cds, Version: "2", Resources: clusters("a", "c")}, snapshot.Absent},
		"added, without a version": {named(cds, "a"), []resp{a("")}, brought("a", "b"), a(""), snapshot.Pending},
	} {
		t.Run(what, func(t *testing.T) {
			r := newProtocolFixture(t, xds.SotW)
			r.want(c.first)
			r.flush()
			for _, before := range c.before {
				r.respond(before)
				r.flush()
			}
			r.want(c.second)
			r.flush()
			r.respond(c.answer)
			r.is(cds, c.is, "b")
		})
	}
}

func TestP59_SotWOversizedRequestIsSentAndReported(t *testing.T) {
	r := newProtocolFixture(t, xds.SotW)
	r.max = 20
	r.connect()
	r.want(named(rds, strings.Repeat("a", 30)))
	req := r.next()
	if req == nil || !req.Oversized {
		t.Errorf("request %+v", req)
	}
}

func TestRepliesToAnOriginThatDoesNotReadAreBounded(t *testing.T) {
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		r := newProtocolFixture(t, v)
		r.want(all(cds))
		r.next()
		for range 3 * maxReplies {
			r.respond(resp{Type: cds, Resources: clusters("a", "a")})
			r.respond(resp{Type: cds, Resources: clusters("a")})
		}
		n := 0
		for req := r.next(); req != nil; req = r.next() {
			n++
		}
		if n > maxReplies+1 {
			t.Errorf("%v: %d replies", v, n)
		}
	}
}
