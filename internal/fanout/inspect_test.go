package fanout

import (
	"fmt"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"

	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/fanout/rest/resttest"
	"xdsrelay/internal/xds"
)

var statusNames = map[inspect.NameStatus]string{inspect.StatusRequested: "requested", inspect.StatusDoesNotExist: "absent", inspect.StatusAcked: "acked", inspect.StatusNacked: "nacked", inspect.StatusReceivedError: "error", inspect.StatusUnknown: "unknown"}

// Client configs over real streams: the client, its types, and what it said.
func TestInspect(t *testing.T) {
	r := newServerFixture(t, nil)
	g := r.groups.Group("edge")
	g.Publish(update(t, xds.ClusterType, "a"), update(t, xds.EndpointType, "e"))
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
		for _, i := range r.srv.ClientConfigs() {
			if i.Node.ID == "" || i.Conn == nil || i.Variant != "delta" || i.Peer == "" {
				t.Fatalf("%+v", i)
			}
			for _, typ := range i.Types() {
				for n := range typ.Resources {
					said := ""
					if n.Nack != nil {
						said = n.Nack.Message
					}
					got += fmt.Sprintln(typ.URL[strings.LastIndex(string(typ.URL), ".")+1:], n.Name, n.NameStatus, n.State, said)
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

// A poller is listed by what it asks for, and by the version with which it polled last.
func TestInspectPolls(t *testing.T) {
	r := newREST(t, func(o *Options) { o.LongPoll = 50 * time.Millisecond })
	r.groups.Group("edge").Publish(update(t, xds.EndpointType, "a", "-b"))
	c := r.HTTP(resttest.Protocols[0])
	stands := func() (out string) {
		for _, i := range r.srv.ClientConfigs() {
			for _, typ := range i.Types() {
				for n := range typ.Resources {
					out += fmt.Sprintf("%s %s:%s/%s ", i.Variant, n.Name, statusNames[n.NameStatus], n.State)
				}
			}
		}
		return out
	}
	version := r.Response(r.Ask(c, xds.EndpointType, "", "a", "b")).VersionInfo
	if got, want := stands(), "rest a:requested/STALE rest b:absent/SYNCED "; got != want {
		t.Errorf("given: %s, want %s", got, want)
	}
	r.Ask(c, xds.EndpointType, version, "a", "b") // held until there is nothing new
	if got, want := stands(), "rest a:acked/SYNCED rest b:absent/SYNCED "; got != want {
		t.Errorf("taken: %s, want %s", got, want)
	}
}
