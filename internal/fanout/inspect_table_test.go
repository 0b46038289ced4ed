package fanout

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"

	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/fanout/rest/resttest"
	"xdsrelay/internal/fanout/subscriber/subscribertest"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
	"xdsrelay/internal/xdstest"
)

// statesOfTypes are scripts of one client, and what the inspector shows after a step. A client of a
// variant asks for endpoints, or for all clusters; "rest" is a client that polls. Steps:
//
//	publish a=2 -b     the origin has a with content 2, and no b; before them, "as V:" is the version,
//	                   and "names": it was not asked for all
//	settle a           the same, and it settles
//	say                the client's first request, or an answer without a response, with its names
//	add y              it requests y too
//	recv               it receives a response
//	ack, nack          it answers that
//	take               recv and ack
//	poll               it polls with the version that it has, and takes the answer
//	renack             it polls with a NACK of the version that it has
//	restart, forget    the relay forgets its pollers; the poller forgets its version
//	resume x           its first request says that it has version v1 of its names, here of x
//	look               nothing
//	counts             instead of the client, how far the newest version has come
var statesOfTypes = []struct {
	name  string
	kinds string
	names string // that it requests: of load assignments, or of clusters after "CDS"
	steps string
}{
	{"P31: names that nobody has", "sotw", "x y", `
		say | NOT SENT, nothing; x:requested/NOT SENT y:requested/NOT SENT; sent 0; unacknowledged: NOT SENT unsent false awaits [x y]
		publish other | NOT SENT, 0 behind; x:requested/NOT SENT y:requested/NOT SENT; sent 0; unacknowledged: NOT SENT unsent false awaits [x y]
		publish -x
		look | NOT SENT, 0 behind; x:absent/SYNCED y:requested/NOT SENT; sent 0; unacknowledged: NOT SENT unsent false awaits [y]
		publish -y
		look | SYNCED, 0 behind; x:absent/SYNCED y:absent/SYNCED; sent 0
		publish x
		take | SYNCED, 0 behind; x:acked/SYNCED y:absent/SYNCED; sent 1 newest
	`},
	{"P31: names that nobody has", "delta", "x y", `
		say | NOT SENT, nothing; x:requested/NOT SENT y:requested/NOT SENT; sent 0; unacknowledged: NOT SENT unsent false awaits [x y]
		publish other | NOT SENT, 0 behind; x:requested/NOT SENT y:requested/NOT SENT; sent 0; unacknowledged: NOT SENT unsent false awaits [x y]
		publish -x
		take
		look | NOT SENT, 0 behind; x:absent/SYNCED y:requested/NOT SENT; sent 1 newest; unacknowledged: NOT SENT unsent false awaits [y]
		publish -y
		take
		look | SYNCED, 0 behind; x:absent/SYNCED y:absent/SYNCED; sent 2 newest
		publish x
		take | SYNCED, 0 behind; x:acked/SYNCED y:absent/SYNCED; sent 3 newest
	`},
	{"P31: a client asks for more", "sotw delta", "x", `
		publish x
		say
		take | SYNCED, 0 behind; x:acked/SYNCED; sent 1 newest
		add y | NOT SENT, 0 behind; x:acked/SYNCED y:requested/NOT SENT; sent 1 newest; unacknowledged: NOT SENT unsent false awaits [y]
		publish x=22 | STALE, 1 behind; x:unknown/STALE y:requested/NOT SENT; sent 2 pending; unacknowledged: STALE unsent false awaits []
		take | NOT SENT, 0 behind; x:acked/SYNCED y:requested/NOT SENT; sent 2 newest; unacknowledged: NOT SENT unsent false awaits [y]
		publish y
		take | SYNCED, 0 behind; x:acked/SYNCED y:acked/SYNCED; sent 3 newest
	`},
	{"P66: a client keeps what it brought until the origin answers", "sotw delta rest", "x y", `
		resume x y | UNCONFIRMED, nothing; x:unknown/UNCONFIRMED y:unknown/UNCONFIRMED; sent 0; unacknowledged: UNCONFIRMED unsent false awaits [x y]
		publish other | UNCONFIRMED, nothing; x:unknown/UNCONFIRMED y:unknown/UNCONFIRMED; sent 0; unacknowledged: UNCONFIRMED unsent false awaits [x y]
	`},
	{"P66: a client that brought something asks for more", "sotw", "x", `
		resume x | UNCONFIRMED, nothing; x:unknown/UNCONFIRMED; sent 0; unacknowledged: UNCONFIRMED unsent false awaits [x]
		add y | NOT SENT, nothing; x:requested/NOT SENT y:requested/NOT SENT; sent 0; unacknowledged: NOT SENT unsent false awaits [x y]
	`},
	{"P66: a client brought one name", "delta", "x y", `
		resume x | NOT SENT, nothing; x:requested/NOT SENT y:requested/NOT SENT; sent 0; unacknowledged: NOT SENT unsent false awaits [x y]
		publish other | NOT SENT, 0 behind; x:requested/NOT SENT y:requested/NOT SENT; sent 0; unacknowledged: NOT SENT unsent false awaits [x y]
		publish y
		take
		look | NOT SENT, 0 behind; x:requested/NOT SENT y:acked/SYNCED; sent 1 newest; unacknowledged: NOT SENT unsent false awaits [x]
	`},
	{"P66: a client brought all clusters", "sotw delta", "CDS", `
		resume x | UNCONFIRMED, nothing;; sent 0; unacknowledged: UNCONFIRMED unsent false awaits [*]
		publish x
		take
		look | SYNCED, 0 behind; x:acked/SYNCED; sent 1 newest
	`},
	{"what does not concern a client it has", "sotw delta", "a", `
		publish a b
		say
		take | SYNCED, 0 behind; a:acked/SYNCED; sent 1 newest
		publish b=2
		publish b=33 | SYNCED, 0 behind; a:acked/SYNCED; sent 1 newest
		settle a=2 | STALE, 1 behind; a:acked/STALE; sent 1 unsent; unacknowledged: STALE unsent true awaits []
		publish a=33
		recv | STALE, 2 behind; a:unknown/STALE; sent 2 pending; unacknowledged: STALE unsent false awaits []
		nack | NACKED, 2 behind; a:nacked/NACKED; sent 2 nack no final; unacknowledged: NACKED unsent false awaits []
		publish b=444 | NACKED, 3 behind; a:nacked/NACKED; sent 2 nack no final; unacknowledged: NACKED unsent false awaits []
		publish a=444
		recv | STALE, 4 behind; a:unknown/STALE; sent 3 pending nack no; unacknowledged: STALE unsent false awaits []
		ack | SYNCED, 0 behind; a:acked/SYNCED; sent 3 newest nack no
	`},
	{"late subscriptions are not timed", "sotw delta", "a", `
		publish a b c
		say
		take | SYNCED, 0 behind; a:acked/SYNCED; sent 1 newest
		publish b=2 | SYNCED, 0 behind; a:acked/SYNCED; sent 1 newest
		add b
		take | SYNCED, 0 behind; a:acked/SYNCED b:acked/SYNCED; sent 2 newest
		counts | 1 changed, 0 removed, 1 sent, 1 acknowledged, 0 refused, 0 timed
		publish b=22
		take | SYNCED, 0 behind; a:acked/SYNCED b:acked/SYNCED; sent 3 newest
		counts | 1 changed, 0 removed, 1 sent, 1 acknowledged, 0 refused, 1 timed
	`},
	{"a version in several responses counts once", "sotw delta", "a b", `
		publish as v1: a b
		say
		take | SYNCED, 0 behind; a:acked/SYNCED b:acked/SYNCED; sent 1 newest
		publish as v2: a=22
		take | SYNCED, 0 behind; a:acked/SYNCED b:acked/SYNCED; sent 2 newest
		counts | 1 changed, 0 removed, 1 sent, 1 acknowledged, 0 refused, 1 timed
		publish as v2: b=22
		take | SYNCED, 0 behind; a:acked/SYNCED b:acked/SYNCED; sent 3 newest
		counts | 2 changed, 0 removed, 1 sent, 1 acknowledged, 0 refused, 1 timed
	`},
	{"states of a type", "sotw delta", "CDS", `
		say | NOT SENT, nothing;; sent 0; unacknowledged: NOT SENT unsent false awaits [*]
		publish a
		recv | STALE, nothing; a:requested/STALE; sent 1 pending; unacknowledged: STALE unsent false awaits []
		ack | SYNCED, 0 behind; a:acked/SYNCED; sent 1 newest
		counts | 1 changed, 0 removed, 1 sent, 1 acknowledged, 0 refused, 1 timed
		publish a=2
		recv
		nack | NACKED, 1 behind; a:nacked/NACKED; sent 2 nack no final; unacknowledged: NACKED unsent false awaits []
		counts | 1 changed, 0 removed, 1 sent, 0 acknowledged, 1 refused, 0 timed
	`},
	{"P15: a NACK stands until its resources are taken", "delta", "CDS", `
		publish a b
		say
		take | SYNCED, 0 behind; a:acked/SYNCED b:acked/SYNCED; sent 1 newest
		publish a=2
		recv
		nack | NACKED, 1 behind; a:nacked/NACKED b:acked/SYNCED; sent 2 nack no final; unacknowledged: NACKED unsent false awaits []
		publish b=2
		take | NACKED, 2 behind; a:nacked/NACKED b:acked/SYNCED; sent 3 newest nack no final; unacknowledged: NACKED unsent false awaits []
		publish a=3
		take | SYNCED, 0 behind; a:acked/SYNCED b:acked/SYNCED; sent 4 newest nack no
	`},
	{"P19: what is not sent yet is STALE", "sotw delta", "a", `
		publish a b
		say
		recv
		publish a=2 | STALE, nothing; a:requested/STALE; sent 1 pending unsent; unacknowledged: STALE unsent false awaits []
		ack
		take | SYNCED, 0 behind; a:acked/SYNCED; sent 2 newest
		publish b=2 | SYNCED, 0 behind; a:acked/SYNCED; sent 2 newest
		counts | 1 changed, 0 removed, 0 sent, 0 acknowledged, 0 refused, 0 timed
	`},
	{"what settles is not sent yet", "delta", "CDS", `
		publish a
		say
		take | SYNCED, 0 behind; a:acked/SYNCED; sent 1 newest
		settle a=2 | STALE, 1 behind; a:acked/STALE; sent 1 unsent; unacknowledged: STALE unsent true awaits []
	`},
	{"P31: a poller asks for more", "rest", "x y", `
		publish x
		poll
		poll | NOT SENT, 0 behind; x:acked/SYNCED y:requested/NOT SENT; sent 1; unacknowledged: NOT SENT unsent false awaits [y]
		publish -y | SYNCED, 0 behind; x:acked/SYNCED y:absent/SYNCED; sent 1
	`},
	{"P31: a poller asks for more of a full state", "rest", "CDS a b c", `
		publish names a -b
		poll
		poll | NOT SENT, 0 behind; a:acked/SYNCED b:absent/SYNCED c:requested/NOT SENT; sent 1; unacknowledged: NOT SENT unsent false awaits [c]
	`},
	{"P31: polled names that do not exist", "rest", "x y", `
		publish other
		poll | NOT SENT, 0 behind; x:requested/NOT SENT y:requested/NOT SENT; sent 0; unacknowledged: NOT SENT unsent false awaits [x y]
		publish -x -y | SYNCED, 0 behind; x:absent/SYNCED y:absent/SYNCED; sent 0
		publish x
		poll | STALE, nothing; x:requested/STALE y:absent/SYNCED; sent 1 pending; unacknowledged: STALE unsent false awaits []
		poll | SYNCED, 0 behind; x:acked/SYNCED y:absent/SYNCED; sent 1
		publish x=22 | STALE, 1 behind; x:unknown/STALE y:absent/SYNCED; sent 1 unsent; unacknowledged: STALE unsent true awaits []
	`},
	{"P71: the current version is had", "rest", "a", `
		publish a
		poll | STALE, nothing; a:requested/STALE; sent 1 pending; unacknowledged: STALE unsent false awaits []
		restart
		poll | SYNCED, 0 behind; a:acked/SYNCED; sent 0
		forget
		poll | 2 clients [STALE SYNCED]
	`},
	{"P71: a newer answer is no step back", "rest", "a", `
		publish a
		poll
		poll | SYNCED, 0 behind; a:acked/SYNCED; sent 1
		publish a=22
		poll | STALE, 1 behind; a:unknown/STALE; sent 2 pending; unacknowledged: STALE unsent false awaits []
		publish a | STALE, 2 behind; a:unknown/STALE; sent 2 pending unsent; unacknowledged: STALE unsent true awaits []
		poll | STALE, 1 behind; a:unknown/STALE; sent 3 pending; unacknowledged: STALE unsent false awaits []
		publish -a | STALE, 2 behind; a:absent/SYNCED; sent 3 pending; unacknowledged: STALE unsent false awaits []
		poll | SYNCED, 0 behind; a:absent/SYNCED; sent 3
	`},
	{"P71: a poller of a busy key", "rest", "a", `
		publish a
		poll
		publish a=77
		poll | STALE, 1 behind; a:unknown/STALE; sent 2 pending; unacknowledged: STALE unsent false awaits []
		publish a=777
		poll | STALE, 1 behind; a:unknown/STALE; sent 3 pending; unacknowledged: STALE unsent false awaits []
		publish a=7777
		poll | STALE, 1 behind; a:unknown/STALE; sent 4 pending; unacknowledged: STALE unsent false awaits []
		renack | NACKED, 1 behind; a:nacked/NACKED; sent 4 nack no final; unacknowledged: NACKED unsent false awaits []
	`},
}

// TestP15_P19_P31_P71_StatesOfTypes runs the scripts of statesOfTypes.
func TestP15_P19_P31_P71_StatesOfTypes(t *testing.T) {
	for _, tc := range statesOfTypes {
		for _, kind := range strings.Fields(tc.kinds) {
			t.Run(tc.name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				var s *stateScript
				if kind == "rest" {
					r := newREST(t, func(o *Options) { o.LongPoll = 300 * time.Millisecond })
					s = &stateScript{serverFixture: r.serverFixture, rest: r}
				} else {
					s = &stateScript{serverFixture: newServerFixture(t, nil)}
					v := xds.SotW
					if kind == "delta" {
						v = xds.Delta
					}
					s.teller = s.serverFixture.teller(v)
				}
				names, clusters := strings.CutPrefix(tc.names, "CDS")
				s.group, s.names, s.url = s.groups.Group("edge"), strings.Fields(names), xds.EndpointType
				if clusters {
					s.url = xds.ClusterType
				}
				if s.teller != nil {
					s.teller.url = s.url
				}
				for line := range strings.Lines(strings.TrimSpace(tc.steps)) {
					step, want, _ := strings.Cut(strings.TrimSpace(line), " | ")
					see := s.step(t, strings.Fields(step))
					if want = strings.TrimSpace(want); want == "" {
						continue
					}
					if err := xdstest.Poll(10*time.Second, 5*time.Millisecond, func() error {
						if got := see(); got != want {
							return fmt.Errorf("%s, want %s", got, want)
						}
						return nil
					}); err != nil {
						t.Fatalf("%s: %v", step, err)
					}
				}
			})
		}
	}
}

// stateScript is a client of either kind under a script.
type stateScript struct {
	*serverFixture
	group  *subscribertest.Group
	teller *teller      // of a stream
	rest   *restFixture // of polls
	url    xds.TypeURL
	names  []string
	has    string // the version with which it polls
}

// step does a step, and returns what shows its effect.
func (s *stateScript) step(t *testing.T, words []string) (see func() string) {
	t.Helper()
	verb, args := words[0], words[1:]
	switch c := s.teller; verb {
	case "publish", "settle":
		var u snapshot.Update
		switch args[0] {
		case "as":
			u = update(t, s.url, args[2:]...)
			u.Version = strings.TrimSuffix(args[1], ":")
		case "names":
			u = update(t, s.url, args[1:]...)
			u.Wildcard = false
		default:
			u = update(t, s.url, args...)
		}
		if verb == "settle" {
			s.group.Settle(u)
		} else {
			s.group.Publish(u)
		}
	case "say":
		c.say("", s.names...)
	case "add":
		s.names = append(s.names, args...)
		if c != nil && c.v == xds.Delta {
			c.say("", args...)
		} else if c != nil {
			c.say("", s.names...)
		}
	case "recv":
		c.recv()
	case "ack":
		c.answer("", s.names...)
	case "nack":
		c.answer("no", s.names...)
	case "take":
		c.recv()
		c.answer("", s.names...)
	case "poll":
		h := s.rest.HTTP(resttest.Protocols[0])
		if reply := s.rest.Ask(h, s.url, s.has, s.names...); reply.Status == 200 {
			s.has = s.rest.Response(reply).VersionInfo
		}
	case "renack":
		<-s.rest.Nack(s.rest.HTTP(resttest.Protocols[0]), s.url, s.has, s.names...)
	case "resume":
		switch {
		case c == nil:
			s.has = "v1"
			return s.step(t, []string{"poll"})
		case c.v == xds.Delta:
			has := map[string]string{}
			for _, n := range args {
				has[n] = "v1"
			}
			c.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node("n"), TypeUrl: string(c.url), InitialResourceVersions: has, ResourceNamesSubscribe: s.names})
		default:
			c.last.Version = "v1"
			c.say("", s.names...)
		}
	case "restart":
		s.srv.forgetPollers()
	case "forget":
		s.has = ""
	case "look":
	case "counts":
		return s.counts
	default:
		t.Fatalf("no step %q", verb)
	}
	return s.shown
}

// answer acknowledges the response before, or rejects it; names are those that a SotW client lists.
func (c *teller) answer(refused string, names ...string) {
	c.t.Helper()
	if c.v == xds.Delta {
		names = nil
	}
	c.say(refused, names...)
}

// shown is what the inspector says of the only client's only type: its state, the generation that
// it has, its names, how often it was sent something, and what it has not acknowledged.
func (r *serverFixture) shown() string {
	r.t.Helper()
	all := r.srv.Clients()
	if len(all) != 1 || len(all[0].Types) != 1 {
		var states []string
		for _, c := range all {
			for _, at := range c.Types {
				states = append(states, at.State)
			}
		}
		slices.Sort(states)
		return fmt.Sprint(len(all), " clients ", states)
	}
	out := all[0].Types[0].State
	if s := r.stands(); s.State != out {
		out += " or " + s.State
	}
	has := "nothing"
	if s := r.stands(); s.Has > 0 {
		has = fmt.Sprintf("%d behind", r.gen()-s.Has)
	}
	out += ", " + has + ";"
	for _, i := range r.srv.ClientConfigs() {
		for _, typ := range i.Types() {
			for n := range typ.Resources {
				out += fmt.Sprintf(" %s:%s/%s", n.Name, statusNames[n.NameStatus], n.State)
			}
		}
	}
	at := all[0].Types[0]
	out += fmt.Sprint("; sent ", at.Sends)
	if at.Acked != "" && at.Acked == r.newest() {
		out += " newest"
	}
	if at.PendingACKSince != nil {
		out += " pending"
	}
	if at.Unsent {
		out += " unsent"
	}
	if at.Nack != nil {
		out += " nack " + at.Nack.Message
	}
	if p := at.PendingACKSince; p != nil && !at.Since.Equal(*p) || at.State == inspect.StateNacked && !at.Since.Equal(at.Nack.At) || at.Since.IsZero() {
		out += " since " + at.Since.String() // it is not when the state began
	}
	if r.stands().Final {
		out += " final"
	}
	for _, u := range r.unacknowledged("n") {
		out += fmt.Sprintf("; unacknowledged: %s unsent %v awaits %v", u.State, u.Unsent, u.Unanswered)
	}
	return out
}

func (r *serverFixture) unacknowledged(node string) (out []inspect.Unacknowledged) {
	for _, of := range r.srv.Unacknowledged(node, 0) {
		out = append(out, of...)
	}
	return out
}

// newest is the newest version.
func (r *serverFixture) newest() string {
	g := r.groups.Group("edge")
	g.Mu.Lock()
	defer g.Mu.Unlock()
	if len(g.Snaps) == 0 {
		return ""
	}
	return g.Snaps[0].Version
}

// teller is a client of either variant that asks for clusters and answers when it
// is told to.
type teller struct {
	*plain
	v    xds.Variant
	url  xds.TypeURL
	last xdstest.Response
}

func (r *serverFixture) teller(v xds.Variant) *teller {
	return &teller{plain: r.ads(r.dial(), v), v: v, url: xds.ClusterType}
}

// say sends a request: an answer to the response before, a NACK if it has a text.
func (c *teller) say(refused string, names ...string) {
	c.t.Helper()
	var e *rpcstatus.Status
	if refused != "" {
		e = &rpcstatus.Status{Code: 3, Message: refused}
	}
	if c.v == xds.Delta {
		c.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node("n"), TypeUrl: string(c.url), ResponseNonce: c.last.Nonce, ErrorDetail: e, ResourceNamesSubscribe: names})
		return
	}
	c.Send(&discoveryv3.DiscoveryRequest{Node: node("n"), TypeUrl: string(c.url), ResponseNonce: c.last.Nonce, VersionInfo: c.last.Version, ErrorDetail: e, ResourceNames: names})
}

// recv takes a response and does not answer.
func (c *teller) recv() {
	c.t.Helper()
	c.last = c.Next()
}

// is waits until the only client's only type is in the state.
func (r *serverFixture) is(state string) inspect.TypeStatus {
	r.t.Helper()
	var at inspect.TypeStatus
	r.eventually(func() bool {
		all := r.srv.Clients()
		if len(all) != 1 || len(all[0].Types) != 1 {
			return false
		}
		at = all[0].Types[0]
		return at.State == state
	})
	return at
}

// counts are those of the newest version.
func (r *serverFixture) counts() string {
	g := r.groups.Group("edge")
	g.Mu.Lock()
	defer g.Mu.Unlock()
	c := g.Snaps[0].Progress.Counts()
	took := uint32(0)
	for _, n := range c.AckTimes {
		took += n
	}
	return fmt.Sprintf("%d changed, %d removed, %d sent, %d acknowledged, %d refused, %d timed", c.Changed, c.Removed, c.Sent, c.Acked, c.Nacked, took)
}

// stands is the only client's only type's state.
func (r *serverFixture) stands() (out inspect.TypeState) {
	for s := range r.srv.TypeStates(func(xds.Key, xds.TypeURL) bool { return true }) {
		out = s
	}
	return out
}

func (r *serverFixture) gen() uint64 {
	g := r.groups.Group("edge")
	g.Mu.Lock()
	defer g.Mu.Unlock()
	return g.Snaps[0].Gen
}
