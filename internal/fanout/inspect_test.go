package fanout

import (
	"fmt"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"

	"xdsrelay/internal/xds"
)

var stances = map[Stance]string{Untold: "untold", Missing: "missing", Taken: "taken", Declined: "declined", Failed: "failed", Unsure: "unsure"}

// stands writes how the client stands to each name, as "a=2:taken/SYNCED".
func (w *sessionFixture) stands(acks int) string {
	t := InspectedType{session: w.s.still(), now: w.cur, took: acks > 0, nack: Nack{Version: w.refused}}
	var out []string
	for r := range t.Resources() {
		name := r.Name
		if r.Has != nil {
			name = w.describe(r.Has)
		}
		if r.Refused != nil {
			name += "!" + w.describe(r.Refused)
		}
		out = append(out, fmt.Sprintf("%s:%s/%s", name, stances[r.Stance], r.State))
	}
	return strings.Join(out, " ")
}

func (w *sessionFixture) standing(acks int, want string) {
	w.t.Helper()
	if got := w.stands(acks); got != want {
		w.t.Fatalf("stands\n%s, want\n%s", got, want)
	}
}

// refuse refuses the newest response.
func (w *sessionFixture) refuse(names ...string) {
	w.refused = w.frame.version
	w.nack(names...)
}

// What a client said of a name is what is shown of it, from its first request on.
func TestStanceOfNames(t *testing.T) {
	each(t, xds.EndpointType, func(w *sessionFixture) {
		w.sub("a", "b")
		w.standing(0, "a:untold/NOT SENT b:untold/NOT SENT")
		w.named("a")
		w.standing(0, "a:untold/NOT SENT b:untold/NOT SENT")
		w.want("a")
		w.standing(0, "a:untold/STALE b:untold/NOT SENT")
		w.ack("a", "b")
		w.standing(1, "a:taken/SYNCED b:untold/NOT SENT")

		w.named("a=2", "-b")
		if w.s.variant == xds.Delta {
			w.standing(1, "a:taken/STALE b:untold/NOT SENT")
			w.want("a=2 -b")
			w.standing(1, "a:unsure/STALE b:missing/STALE")
			w.refuse()
			w.standing(1, "a!a=2:declined/NACKED b:missing/SYNCED")
		} else {
			w.standing(1, "a:taken/STALE b:missing/SYNCED") // P31: silence is how it is told
			w.want("a=2")
			w.standing(1, "a:unsure/STALE b:missing/SYNCED")
			w.refuse("a", "b")
			w.standing(1, "a!a=2:declined/NACKED b:missing/SYNCED")
		}
		// P15: it goes again once it changes, and is refused until that is taken.
		w.named("a=33")
		w.standing(1, "a!a=2:declined/NACKED b:missing/SYNCED")
		if w.s.variant == xds.Delta {
			w.want("a=33 -b")
			w.standing(1, "a:unsure/STALE b:missing/STALE")
		} else {
			w.want("a=33")
			w.standing(1, "a:unsure/STALE b:missing/SYNCED")
		}
		w.ack("a", "b")
		w.standing(2, "a=33:taken/SYNCED b:missing/SYNCED")
		if w.s.variant == xds.Delta {
			w.unsub("b")
			w.standing(2, "a=33:taken/SYNCED")
		}
	})
}

// Of a name that was asked for just now nothing was sent, whatever others under
// the key were.
func TestStanceOfWhatIsNewlyAsked(t *testing.T) {
	each(t, xds.EndpointType, func(w *sessionFixture) {
		w.named("a", "b")
		w.sub("a")
		w.want("a")
		w.ack("a")
		if w.s.variant == xds.Delta {
			w.sub("b")
		} else {
			w.sub("a", "b")
		}
		w.standing(1, "a:taken/SYNCED b:untold/NOT SENT")
		w.want("b")
		w.standing(1, "a:taken/SYNCED b:unsure/STALE")
		w.ack("a", "b")
		w.standing(2, "a:taken/SYNCED b:taken/SYNCED")
	})
	// P12: a request that was stale asks all the same.
	w := newSessionFixture(t, xds.EndpointType, xds.SotW)
	w.named("a", "b")
	w.sub("a")
	w.want("a")
	w.sub("a", "b")
	w.standing(0, "a:untold/STALE b:untold/NOT SENT")
}

// A wildcard asks for all that there is; what was removed is gone.
func TestStanceOfAWildcard(t *testing.T) {
	each(t, xds.ClusterType, func(w *sessionFixture) {
		w.sub()
		w.standing(0, "")
		w.wild("a", "b")
		w.standing(0, "a:untold/NOT SENT b:untold/NOT SENT")
		w.want("a b")
		w.ack()
		w.wild("c", "-b")
		w.standing(1, "a:taken/SYNCED b:taken/STALE c:untold/NOT SENT")
		w.next()
		w.refuse()
		if w.s.variant == xds.Delta {
			w.standing(1, "a:taken/SYNCED c!c:declined/NACKED")
		} else {
			w.standing(1, "a!a:declined/NACKED c!c:declined/NACKED") // of a set nobody can tell which
		}
	})
}

// P27: what a client brought it has, though nothing was sent.
func TestStanceOfWhatWasBrought(t *testing.T) {
	w := newSessionFixture(t, xds.ClusterType, xds.Delta)
	w.wild("a")
	w.send(request{initial: map[string]string{"a": w.resource("a").Version.String()}})
	w.want("(empty)")
	w.standing(0, "a:taken/SYNCED")
}

// P39: an error stands in the place of the resource; NOT_FOUND is an absence.
func TestStanceOfErrors(t *testing.T) {
	each(t, xds.EndpointType, func(w *sessionFixture) {
		w.named("a")
		w.sub("a", "b")
		w.want("a")
		w.ack("a", "b")
		w.fail(false, "a", "b")
		w.next()
		w.ack("a", "b")
		w.standing(2, "a:failed/SYNCED b:failed/SYNCED")
	})
}

// P26: an alias is there by what it leads to.
func TestStanceOfAliases(t *testing.T) {
	w := newSessionFixture(t, xds.VHostType, xds.Delta)
	w.sub("alias")
	w.standing(0, "alias:untold/NOT SENT")
	w.named("v|alias")
	w.next()
	w.ack()
	w.standing(1, "v:taken/SYNCED")
}

// All of it over real streams: who asked, of which type, and what was said.
func TestInspect(t *testing.T) {
	r := newServerFixture(t, nil)
	g := r.house.group("edge")
	g.publish(update(t, xds.ClusterType, "a"), update(t, xds.EndpointType, "e"))
	cc := r.dial()
	c := r.delta(cc)
	c.ask(xds.ClusterType)
	m, err := c.Recv()
	if err != nil {
		t.Fatal(err)
	}
	c.must(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.TypeUrl, ResponseNonce: m.Nonce, ErrorDetail: &rpcstatus.Status{Code: 3, Message: "no such thing"}})
	c.ask(xds.EndpointType, "e", "f")
	c.recv()
	want := "Cluster a 3 NACKED no such thing; ClusterLoadAssignment e 2 SYNCED ; ClusterLoadAssignment f 0 NOT SENT ; "
	var got string
	for range 500 {
		got = ""
		for _, i := range r.srv.Inspect() {
			if i.Node.ID == "" || i.Conn == nil || i.Variant != "delta" || i.Peer == "" {
				t.Fatalf("%+v", i)
			}
			for _, typ := range i.Types() {
				for n := range typ.Resources() {
					said := ""
					if n.Nack != nil {
						said = n.Nack.Message
					}
					got += fmt.Sprintln(typ.URL[strings.LastIndex(string(typ.URL), ".")+1:], n.Name, n.Stance, n.State, said)
				}
			}
		}
		got = strings.ReplaceAll(got, "\n", "; ")
		if got == want {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	t.Errorf("%s, want\n%s", got, want)
}

// Who polls is there by what it asks for, and what it came with last.
func TestInspectPolls(t *testing.T) {
	r := newREST(t, func(o *Options) { o.LongPoll = 50 * time.Millisecond })
	r.house.group("edge").publish(update(t, xds.EndpointType, "a", "-b"))
	c := r.web(protocols[0])
	stands := func() (out string) {
		for _, i := range r.srv.Inspect() {
			for _, typ := range i.Types() {
				for n := range typ.Resources() {
					out += fmt.Sprintf("%s %s:%s/%s ", i.Variant, n.Name, stances[n.Stance], n.State)
				}
			}
		}
		return out
	}
	version := r.response(r.ask(c, xds.EndpointType, "", "a", "b")).VersionInfo
	if got, want := stands(), "rest a:untold/STALE rest b:missing/SYNCED "; got != want {
		t.Errorf("given: %s, want %s", got, want)
	}
	r.ask(c, xds.EndpointType, version, "a", "b") // held until there is nothing new
	if got, want := stands(), "rest a:taken/SYNCED rest b:missing/SYNCED "; got != want {
		t.Errorf("taken: %s, want %s", got, want)
	}
}
