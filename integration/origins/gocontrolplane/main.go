// Command gocontrolplane is an origin for tests: go-control-plane's server with its caches. Tests
// build it with two versions of go-control-plane, the one of the relay's go.mod and the one of
// 013/go.mod, and control it over HTTP.
//
// Each key (node.cluster) has a server and a cache of its own. So tests can run at the same time,
// and can restart a key's control plane without a new process.
//
//	POST /set?key=K&cache=C&version=V&node=N   replace all resources of a key
//	POST /restart?...                          likewise, in a new server and a new cache; end all streams
//	POST /end?key=K                            end all streams
//	GET  /requests?key=K                       the requests so far
//
// The body of set and restart has a line for each resource, a google.protobuf.Any in base64. cache
// is snapshot, ads (a snapshot cache in ADS mode), linear or mux. node is the id of the only node
// that is served; without it all are. A line of /requests has the number of the stream, its variant
// and the request in base64.
package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	// The types that tests use.
	_ "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
)

func main() {
	age := flag.Duration("max-connection-age", 0, "age at which connections are closed; 0: never")
	flag.Parse()
	log.SetFlags(log.Lmicroseconds)

	ads, control := listen(), listen()
	o := &origin{sites: make(map[string]*site)}
	g := grpc.NewServer(grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: *age, MaxConnectionAgeGrace: time.Millisecond}))
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, o)
	go func() { log.Fatal(http.Serve(control, o.handler())) }()
	go func() { log.Fatal(g.Serve(ads)) }()
	log.Printf("serving ads=%s control=%s", ads.Addr(), control.Addr())

	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	<-ended
}

func listen() net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	return l
}

// origin is the process: a site for each key.
type origin struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer

	mu      sync.Mutex
	sites   map[string]*site
	streams int
}

func (o *origin) handler() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, f func(w io.Writer, r *http.Request) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			o.mu.Lock()
			defer o.mu.Unlock()
			if err := f(w, r); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
			}
		})
	}
	handle("POST /set", func(_ io.Writer, r *http.Request) error { return o.set(r, false) })
	handle("POST /restart", func(_ io.Writer, r *http.Request) error { return o.set(r, true) })
	handle("POST /end", func(_ io.Writer, r *http.Request) error {
		s := o.sites[r.FormValue("key")]
		if s == nil {
			return fmt.Errorf("no key %q", r.FormValue("key"))
		}
		s.end()
		return nil
	})
	handle("GET /requests", func(w io.Writer, r *http.Request) error {
		s := o.sites[r.FormValue("key")]
		if s == nil {
			return nil
		}
		_, err := io.WriteString(w, s.requests.String())
		return err
	})
	return mux
}

// set replaces the resources of a key. The caller holds mu.
func (o *origin) set(r *http.Request, restart bool) error {
	q := r.URL.Query()
	key := q.Get("key")
	var resources []proto.Message
	lines := bufio.NewScanner(r.Body)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		wire, err := base64.StdEncoding.DecodeString(lines.Text())
		if err != nil {
			return err
		}
		var a anypb.Any
		if err := proto.Unmarshal(wire, &a); err != nil {
			return err
		}
		m, err := a.UnmarshalNew()
		if err != nil {
			return err
		}
		resources = append(resources, m)
	}
	if err := lines.Err(); err != nil {
		return err
	}
	s := o.sites[key]
	if s != nil && !restart {
		return s.cache.set(context.Background(), q.Get("version"), resources)
	}
	next, err := newSite(q.Get("cache"), q.Get("node"))
	if err != nil {
		return err
	}
	if err := next.cache.set(context.Background(), q.Get("version"), resources); err != nil {
		return err
	}
	o.sites[key] = next
	if s != nil {
		next.requests.WriteString(s.requests.String())
		s.end()
	}
	return nil
}

// StreamAggregatedResources serves a SotW stream by the server of its key.
func (o *origin) StreamAggregatedResources(g discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	first, err := g.Recv()
	if err != nil {
		return err
	}
	s, id, ended, err := o.open(first.GetNode().GetCluster())
	if err != nil {
		return err
	}
	return serve(ended, func() error {
		return s.server.StreamAggregatedResources(&sotwStream{g, first, func(r *discoveryv3.DiscoveryRequest) { o.record(s, id, "sotw", r) }})
	})
}

// DeltaAggregatedResources serves a delta stream by the server of its key.
func (o *origin) DeltaAggregatedResources(g discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	first, err := g.Recv()
	if err != nil {
		return err
	}
	s, id, ended, err := o.open(first.GetNode().GetCluster())
	if err != nil {
		return err
	}
	return serve(ended, func() error {
		return s.server.DeltaAggregatedResources(&deltaStream{g, first, func(r *discoveryv3.DeltaDiscoveryRequest) { o.record(s, id, "delta", r) }})
	})
}

// open returns the site of a key, the number of a new stream, and a channel that is closed when the
// stream has to end.
func (o *origin) open(key string) (*site, int, <-chan struct{}, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.streams++
	s := o.sites[key]
	if s == nil {
		return nil, 0, nil, status.Errorf(codes.Unavailable, "no test has the key %q", key)
	}
	return s, o.streams, s.ended, nil
}

func (o *origin) record(s *site, id int, variant string, r proto.Message) {
	wire, err := proto.Marshal(r)
	if err != nil {
		log.Fatal(err) // it was just decoded
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	fmt.Fprintf(&s.requests, "%d %s %s\n", id, variant, base64.StdEncoding.EncodeToString(wire))
}

// sotwStream is a stream whose first request has been read. It reports each request.
type sotwStream struct {
	discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer
	first  *discoveryv3.DiscoveryRequest
	report func(*discoveryv3.DiscoveryRequest)
}

// Recv returns the next request.
func (s *sotwStream) Recv() (*discoveryv3.DiscoveryRequest, error) {
	r, err := s.first, error(nil)
	if s.first = nil; r == nil {
		r, err = s.AggregatedDiscoveryService_StreamAggregatedResourcesServer.Recv()
	}
	if err == nil {
		s.report(r)
	}
	return r, err
}

// deltaStream is sotwStream for delta.
type deltaStream struct {
	discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer
	first  *discoveryv3.DeltaDiscoveryRequest
	report func(*discoveryv3.DeltaDiscoveryRequest)
}

// Recv returns the next request.
func (s *deltaStream) Recv() (*discoveryv3.DeltaDiscoveryRequest, error) {
	r, err := s.first, error(nil)
	if s.first = nil; r == nil {
		r, err = s.AggregatedDiscoveryService_DeltaAggregatedResourcesServer.Recv()
	}
	if err == nil {
		s.report(r)
	}
	return r, err
}

// site is the control plane of one key.
type site struct {
	server interface {
		StreamAggregatedResources(discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error
		DeltaAggregatedResources(discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error
	}
	cache content

	// origin.mu protects the fields below.
	requests strings.Builder
	ended    chan struct{} // closed and replaced when the streams end
}

// serve runs a stream until its server ends it or ended is closed. A panic ends the stream: the
// MuxCache of 0.13 panics in delta if it has no cache for a type.
func serve(ended <-chan struct{}, stream func() error) error {
	done := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- status.Errorf(codes.Internal, "panic: %v", p)
			}
		}()
		done <- stream()
	}()
	select {
	case err := <-done:
		return err
	case <-ended:
		return status.Error(codes.Unavailable, "the test ends the stream")
	}
}

func (s *site) end() {
	close(s.ended)
	s.ended = make(chan struct{})
}
