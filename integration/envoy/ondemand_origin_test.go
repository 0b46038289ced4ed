package envoy

import (
	"fmt"
	"slices"
	"sync"
	"time"

	clusterservice "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	routeservice "github.com/envoyproxy/go-control-plane/envoy/service/route/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"xdsrelay/internal/xdstest"
)

// vhds is the type URL of virtual hosts.
const vhds = "type.googleapis.com/envoy.config.route.v3.VirtualHost"

// onDemandOrigin is a delta origin with resources that a wildcard does not
// cover, with aliases, and with the TTL runtimeTTL of runtime layers.
// go-control-plane has none of these in delta. It serves every node alike, and
// answers a name that it does not have at once.
type onDemandOrigin struct {
	clusterservice.UnimplementedClusterDiscoveryServiceServer
	routeservice.UnimplementedVirtualHostDiscoveryServiceServer
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer

	mu        sync.Mutex
	resources map[string][]*onDemandResource // by type
	version   int
	streams   map[chan struct{}]bool // each is told of changes
	asked     []string               // the names subscribed so far, as "type name"
}

type onDemandResource struct {
	*discoveryv3.Resource
	onDemand bool // not under a wildcard
}

// onDemandScene has an onDemandOrigin.
var onDemandScene = sceneOptions{origin: xdstest.OriginOptions{Services: func() xdstest.Services {
	return &onDemandOrigin{resources: make(map[string][]*onDemandResource), streams: make(map[chan struct{}]bool)}
}}}

// Register registers the origin's services.
func (o *onDemandOrigin) Register(g *grpc.Server) {
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, o)
	clusterservice.RegisterClusterDiscoveryServiceServer(g, o)
	routeservice.RegisterVirtualHostDiscoveryServiceServer(g, o)
}

// put adds or changes resources that a wildcard covers.
func (o *onDemandOrigin) put(resources ...types.Resource) {
	for _, r := range resources {
		_, name := xdstest.NameOf(r)
		o.set(name, r, false)
	}
}

// putOnDemand adds or changes a resource that has to be subscribed by its name
// or by one of its aliases.
func (o *onDemandOrigin) putOnDemand(name string, r types.Resource, aliases ...string) {
	o.set(name, r, true, aliases...)
}

func (o *onDemandOrigin) set(name string, r types.Resource, onDemand bool, aliases ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.version++
	url := xdstest.TypeOf(r)
	o.drop(url, name)
	res := &discoveryv3.Resource{Name: name, Version: fmt.Sprint("v", o.version), Resource: xdstest.Pack(r), Aliases: aliases}
	if url == rtds {
		res.Ttl = durationpb.New(runtimeTTL)
	}
	o.resources[url] = append(o.resources[url], &onDemandResource{onDemand: onDemand, Resource: res})
	o.tell()
}

// remove deletes a resource.
func (o *onDemandOrigin) remove(url, name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.drop(url, name)
	o.tell()
}

// drop needs mu.
func (o *onDemandOrigin) drop(url, name string) {
	o.resources[url] = slices.DeleteFunc(o.resources[url], func(r *onDemandResource) bool { return r.Name == name })
}

// tell wakes all streams. It needs mu.
func (o *onDemandOrigin) tell() {
	for s := range o.streams {
		select {
		case s <- struct{}{}:
		default:
		}
	}
}

// timesAsked is how often a name was subscribed.
func (o *onDemandOrigin) timesAsked(url, name string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for _, a := range o.asked {
		if a == url+" "+name {
			n++
		}
	}
	return n
}

// DeltaAggregatedResources serves ADS.
func (o *onDemandOrigin) DeltaAggregatedResources(s discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return o.serve(s, "")
}

// DeltaClusters serves CDS.
func (o *onDemandOrigin) DeltaClusters(s clusterservice.ClusterDiscoveryService_DeltaClustersServer) error {
	return o.serve(s, cds)
}

// DeltaVirtualHosts serves VHDS.
func (o *onDemandOrigin) DeltaVirtualHosts(s routeservice.VirtualHostDiscoveryService_DeltaVirtualHostsServer) error {
	return o.serve(s, vhds)
}

// deltaStream is the server's side of a delta stream of any service.
type deltaStream interface {
	grpc.ServerStream
	Send(*discoveryv3.DeltaDiscoveryResponse) error
	Recv() (*discoveryv3.DeltaDiscoveryRequest, error)
}

// deltaType is one type on a delta stream.
type deltaType struct {
	url      string
	wildcard bool
	names    map[string]bool
	known    map[string]string // versions by resource name; "" for a name that does not exist
	nonce    int
	answered bool
}

// serve answers the requests of a stream and sends changes and heartbeats.
func (o *onDemandOrigin) serve(s deltaStream, url string) error {
	changed := make(chan struct{}, 1)
	o.mu.Lock()
	o.streams[changed] = true
	o.mu.Unlock()
	defer func() {
		o.mu.Lock()
		delete(o.streams, changed)
		o.mu.Unlock()
	}()
	requests := xdstest.Receive(s)
	byURL := make(map[string]*deltaType)
	ticks := time.NewTicker(runtimeTTL / 10)
	defer ticks.Stop()
	for {
		heartbeat := false
		select {
		case <-ticks.C:
			heartbeat = true
		case r, more := <-requests:
			if !more {
				return nil
			}
			if r.TypeUrl == "" {
				r.TypeUrl = url
			}
			dt := byURL[r.GetTypeUrl()]
			if dt == nil {
				dt = &deltaType{url: r.GetTypeUrl(), names: make(map[string]bool), known: r.GetInitialResourceVersions(),
					wildcard: len(r.GetResourceNamesSubscribe()) == 0}
				if dt.known == nil {
					dt.known = make(map[string]string)
				}
				byURL[r.GetTypeUrl()] = dt
			}
			o.subscribe(dt, r)
		case <-changed:
		}
		for _, dt := range byURL {
			if resp := o.respond(dt, heartbeat); resp != nil {
				if err := s.Send(resp); err != nil {
					return err
				}
			}
		}
	}
}

// subscribe applies a request's lists.
func (o *onDemandOrigin) subscribe(dt *deltaType, r *discoveryv3.DeltaDiscoveryRequest) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range r.GetResourceNamesSubscribe() {
		o.asked = append(o.asked, dt.url+" "+n)
		if n == "*" {
			dt.wildcard = true
			continue
		}
		dt.names[n] = true
		delete(dt.known, n) // sent again
		for _, res := range o.resources[dt.url] {
			if slices.Contains(res.Aliases, n) {
				delete(dt.known, res.Name)
			}
		}
	}
	for _, n := range r.GetResourceNamesUnsubscribe() {
		delete(dt.names, n)
		if n == "*" {
			dt.wildcard = false
		}
	}
}

// respond returns what the stream does not have yet, with heartbeats for what it
// has if that is asked for, or nil.
func (o *onDemandOrigin) respond(dt *deltaType, heartbeat bool) *discoveryv3.DeltaDiscoveryResponse {
	o.mu.Lock()
	defer o.mu.Unlock()
	resp := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: dt.url, SystemVersionInfo: fmt.Sprint("v", o.version)}
	found := make(map[string]bool) // by resource name or alias
	for _, r := range o.resources[dt.url] {
		names := append([]string{r.Name}, r.Aliases...)
		wanted := dt.wildcard && !r.onDemand || slices.ContainsFunc(names, func(n string) bool { return dt.names[n] })
		if !wanted {
			continue
		}
		for _, n := range names {
			found[n] = true
		}
		if dt.known[r.Name] != r.Version {
			dt.known[r.Name] = r.Version
			resp.Resources = append(resp.Resources, r.Resource)
		} else if heartbeat && r.Ttl != nil {
			resp.Resources = append(resp.Resources, &discoveryv3.Resource{Name: r.Name, Version: r.Version, Ttl: r.Ttl})
		}
	}
	for n := range dt.names {
		if v, known := dt.known[n]; found[n] || known && v == "" {
			continue
		}
		dt.known[n] = ""
		if dt.url == vhds { // an alias that stands for nothing
			resp.Resources = append(resp.Resources, &discoveryv3.Resource{Name: n, Aliases: []string{n}})
		} else {
			resp.RemovedResources = append(resp.RemovedResources, n)
		}
	}
	for n, v := range dt.known {
		if v != "" && !found[n] {
			delete(dt.known, n)
			resp.RemovedResources = append(resp.RemovedResources, n)
		}
	}
	first := dt.wildcard && !dt.answered
	if len(resp.GetResources()) == 0 && len(resp.GetRemovedResources()) == 0 && !first {
		return nil
	}
	dt.answered = true
	dt.nonce++
	resp.Nonce = fmt.Sprint(dt.nonce)
	return resp
}
