package browser

import (
	"net"
	"testing"

	"github.com/chromedp/chromedp"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
)

// What a node has not taken comes page by page: of one with many streams all is there.
func TestWhatDiffersOnManyStreams(t *testing.T) {
	t.Parallel()
	w := serve(t, "")
	for range 21 {
		w.join(node("many", "edge", "eu-1"))
	}
	w.refusing("no such thing")
	w.clusters("2", "web", "new")
	p := w.open()
	p.visit("/ui/nodes/many")
	p.is("(document.querySelector('main').innerText.match(/NACKED/g) ?? []).length >= 21")
	p.do(chromedp.Click("summary"))
	p.is("document.querySelectorAll('.difference').length === 20")
	p.do(chromedp.Click(".differences .pages button"))
	p.is("document.querySelectorAll('.difference').length === 21 && !document.querySelector('.differences .pages')")
}

// A client that has nothing, since the origin says nothing of what it asks for, is shown
// with that.
func TestWhatTheOriginSaysNothingOf(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	origin, done := grpc.NewServer(), make(chan error, 1)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(origin, silent{})
	go func() { done <- origin.Serve(l) }()
	t.Cleanup(func() {
		origin.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	w := &world{TB: t, remote: l.Addr().String(), config: t.TempDir() + "/relay.yaml"}
	w.start("127.0.0.1:0", "")
	w.begin(func() { t.Error("it was given something") }, node("waits", "edge", "eu-1"))
	p := w.open()
	p.visit("/ui/nodes/waits")
	p.shows("main", "NOT SENT")
	p.do(chromedp.Click("summary"))
	p.shows(".difference", "NOT SENT", "the origin has said nothing yet of what it asks for", "all there is (*)")
}

// silent is an origin that takes streams, and says nothing.
type silent struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
}

func (silent) StreamAggregatedResources(s discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	<-s.Context().Done()
	return nil
}

func (silent) DeltaAggregatedResources(s discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	<-s.Context().Done()
	return nil
}
