package fanout

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protowire"

	"xdsrelay/config"
	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/fanout/subscriber/subscribertest"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
	"xdsrelay/internal/xdstest"
)

// ads is one client on one stream of a server, all of it real but the clock,
// which stands unless the test passes time. The client answers each response at
// once, unless it is told to withhold the answers of a type.
//
// Specs are as in sessionFixture: "CDS a b=2 -c". A resource of RDS or LDS leads to the
// cluster that its content names: "RDS r=a".
type ads struct {
	t       testing.TB
	variant xds.Variant
	srv     *Server
	groups  *subscribertest.Joiner
	g       *subscribertest.Group
	conn    *grpc.ClientConn
	stream  grpc.ClientStream

	mu     sync.Mutex
	types  map[xds.TypeURL]*adsType
	log    []string
	broken []string // routes that led to a cluster which was not there
}

// adsType is a type as the client has it.
type adsType struct {
	wild     bool
	names    []string
	holds    map[string]string // name -> content
	withhold bool
	nonces   []string // not answered
}

// adsOptions of a test's server.
type adsOptions struct {
	only xds.TypeURL // of a per-type service
}

// eachADS runs a test on a stream of either variant; what says which of several
// it is.
func eachADS(t *testing.T, what string, o adsOptions, f func(*ads)) {
	inADS(t, what, o, f, variants...)
}

func inADS(t *testing.T, what string, o adsOptions, f func(*ads), vs ...xds.Variant) {
	if what != "" {
		t.Run(what, func(t *testing.T) { inADS(t, "", o, f, vs...) })
		return
	}
	for _, v := range vs {
		t.Run(v.String(), func(t *testing.T) { oneADS(t, v, o, f) })
	}
}

func oneADS(t *testing.T, v xds.Variant, o adsOptions, f func(*ads)) {
	synctest.Test(t, func(t *testing.T) {
		groups := &subscribertest.Joiner{}
		srv := NewServer(Options{
			Joiner: groups, Metrics: newMetrics(t), Replica: "replica",
			Settings: Settings{AckTimeout: ackTimeout},
			Log:      slog.New(slog.DiscardHandler),
		})
		l := bufconn.Listen(1 << 20)
		g := grpc.NewServer(srv.ServerOptions(Keepalive{Time: time.Hour, Timeout: time.Hour, MinTime: time.Second})...)
		srv.Register(g)
		ctx, cancel := context.WithCancel(context.Background())
		var parts sync.WaitGroup
		parts.Go(func() { _ = g.Serve(srv.Listen(l, &listener.Policy{Key: "downstream", Secrets: config.SecretsMTLS})) })
		parts.Go(func() { _ = srv.Run(ctx) })
		conn := xdstest.Must(grpc.NewClient("passthrough:", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return l.Dial() })))(t)
		a := &ads{t: t, variant: v, srv: srv, groups: groups, g: groups.Group("edge"), conn: conn, types: map[xds.TypeURL]*adsType{}}
		method := "/" + aggregated + "/" + map[xds.Variant]string{xds.SotW: "StreamAggregatedResources", xds.Delta: "DeltaAggregatedResources"}[v]
		if o.only != "" {
			typ := xds.TypeOf(o.only)
			method = "/" + typ.Service + "/" + map[xds.Variant]string{xds.SotW: typ.SotW, xds.Delta: typ.Delta}[v]
		}
		a.stream = xdstest.Must(conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method))(t)
		parts.Go(a.receive)
		t.Cleanup(func() {
			cancel()
			_ = conn.Close() // nothing is left to be said on it
			g.Stop()
			parts.Wait()
		})
		f(a)
	})
}

func adsURL(short string) xds.TypeURL {
	url, ok := xds.ParseType(short)
	if !ok {
		panic(short)
	}
	return url
}

// origin publishes States, one a spec; each is sent before the next comes.
func (a *ads) origin(specs ...string) {
	a.t.Helper()
	for _, spec := range specs {
		a.together(spec)
		synctest.Wait()
	}
}

// together publishes one State of several types.
func (a *ads) together(specs ...string) {
	a.t.Helper()
	var us []snapshot.Update
	for _, spec := range specs {
		short, list, _ := strings.Cut(spec, " ")
		u := update(a.t, adsURL(short), strings.Fields(list)...)
		u.Wildcard = u.Wildcard && !a.byName(u.Type)
		us = append(us, u)
	}
	a.g.Publish(us...)
}

func (a *ads) byName(url xds.TypeURL) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	ty := a.types[url]
	return ty != nil && !ty.wild
}

// ask subscribes, by the legacy wildcard where no names are given.
func (a *ads) ask(short string, names ...string) {
	a.t.Helper()
	url := adsURL(short)
	a.mu.Lock()
	ty := a.types[url]
	if ty == nil {
		ty = &adsType{holds: map[string]string{}}
		a.types[url] = ty
	}
	ty.wild = ty.wild || len(names) == 0 || slices.Contains(names, "*")
	ty.names = append(ty.names, names...)
	all := slices.Clone(ty.names)
	a.mu.Unlock()
	if a.variant == xds.SotW {
		a.say(&discoveryv3.DiscoveryRequest{Node: node("n"), TypeUrl: string(url), ResourceNames: all})
	} else {
		a.say(&discoveryv3.DeltaDiscoveryRequest{Node: node("n"), TypeUrl: string(url), ResourceNamesSubscribe: names})
	}
	synctest.Wait()
}

func (a *ads) say(m any) {
	a.t.Helper()
	xdstest.NoError(a.t, a.stream.SendMsg(m))
}

// withhold has the client not answer a type any more.
func (a *ads) withhold(short string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.types[adsURL(short)].withhold = true
}

// ack acknowledges the responses of a type that were withheld, and all later ones.
func (a *ads) ack(short string) {
	url := adsURL(short)
	a.mu.Lock()
	ty := a.types[url]
	ty.withhold = false
	nonces := ty.nonces
	ty.nonces = nil
	a.mu.Unlock()
	for _, n := range nonces {
		a.answer(url, n, false)
	}
	synctest.Wait()
}

func (a *ads) answer(url xds.TypeURL, nonce string, refuse bool) {
	var detail *rpcstatus.Status
	if refuse {
		detail = &rpcstatus.Status{Code: 3, Message: "no"}
	}
	a.mu.Lock()
	names := slices.Clone(a.types[url].names)
	a.mu.Unlock()
	if a.variant == xds.SotW {
		_ = a.stream.SendMsg(&discoveryv3.DiscoveryRequest{TypeUrl: string(url), ResourceNames: names, ResponseNonce: nonce, ErrorDetail: detail})
	} else {
		_ = a.stream.SendMsg(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(url), ResponseNonce: nonce, ErrorDetail: detail})
	}
}

// pass lets time go by.
func (a *ads) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// want fails unless these responses came since the last call, in this order,
// told by what they changed for the client: "CDS +y -x b=2", a resource with
// the content that the client had already as "=b".
func (a *ads) want(responses ...string) {
	a.t.Helper()
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Equal(a.log, responses) {
		a.t.Fatalf("received %q, want %q", a.log, responses)
	}
	a.log = nil
}

func (a *ads) receive() {
	for {
		var url xds.TypeURL
		var nonce string
		got := map[string]string{}
		var gone []string
		if a.variant == xds.SotW {
			var r discoveryv3.DiscoveryResponse
			if a.stream.RecvMsg(&r) != nil {
				return
			}
			url, nonce = xds.TypeURL(r.TypeUrl), r.Nonce
			for _, res := range r.Resources {
				name, content := adsContent(url, res.Value)
				got[name] = content
			}
		} else {
			var r discoveryv3.DeltaDiscoveryResponse
			if a.stream.RecvMsg(&r) != nil {
				return
			}
			url, nonce, gone = xds.TypeURL(r.TypeUrl), r.Nonce, r.RemovedResources
			for _, res := range r.Resources {
				_, got[res.Name] = adsContent(url, res.Resource.Value)
			}
		}
		if a.take(url, nonce, got, gone) {
			a.answer(url, nonce, false)
		}
	}
}

// take applies a response, and reports whether it is to be answered now.
func (a *ads) take(url xds.TypeURL, nonce string, got map[string]string, gone []string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	ty := a.types[url]
	full := a.variant == xds.SotW && (xds.TypeOf(url).FullState || ty.wild)
	line := xds.TypeOf(url).Short
	for _, n := range slices.Sorted(maps.Keys(got)) {
		had, was := ty.holds[n]
		switch {
		case !was:
			line += " +" + n
		case had != got[n]:
			line += fmt.Sprintf(" %s=%s", n, got[n])
		case !full:
			line += " =" + n
		}
		ty.holds[n] = got[n]
	}
	if full {
		for _, n := range slices.Sorted(maps.Keys(ty.holds)) {
			if _, ok := got[n]; !ok {
				gone = append(gone, n)
			}
		}
	}
	for _, n := range gone {
		line += " -" + n
		delete(ty.holds, n)
	}
	a.log = append(a.log, line)
	a.check(line)
	if ty.withhold {
		ty.nonces = append(ty.nonces, nonce)
	}
	return !ty.withhold
}

// check looks for routes that lead to a cluster which is not there.
func (a *ads) check(line string) {
	clusters := a.types[xds.ClusterType]
	if clusters == nil {
		return
	}
	for _, url := range []xds.TypeURL{xds.ListenerType, xds.RouteType} {
		if a.types[url] == nil {
			continue
		}
		for name, to := range a.types[url].holds {
			if _, ok := clusters.holds[to]; to != "" && !ok {
				a.broken = append(a.broken, fmt.Sprintf("after %q %s leads to %s, which is not there", line, name, to))
			}
		}
	}
}

// adsContent reads what sessionFixture.resource made.
func adsContent(url xds.TypeURL, value []byte) (name, content string) {
	field := map[xds.TypeURL]protowire.Number{xds.ClusterType: 28}[url]
	if field == 0 {
		field = 100
	}
	for len(value) > 0 {
		num, typ, n := protowire.ConsumeTag(value)
		value = value[n:]
		size := protowire.ConsumeFieldValue(num, typ, value)
		if typ == protowire.BytesType {
			switch b, _ := protowire.ConsumeBytes(value); {
			case num == 1:
				name = string(b)
			case num == field:
				content = string(b)
			case url == xds.EndpointType && num == 2 && len(b) > 0:
				content = strings.Repeat(fmt.Sprint(b[1]+1), int(b[1])) // its priority
			}
		}
		value = value[size:]
	}
	return name, content
}
