package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	apikeyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/api_key_auth/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"xdsrelay/internal/telemetry/tracing/otlptest"
	"xdsrelay/internal/xdstest"
)

// canaries are secret values that nobody may see.
type canaries struct {
	t    *testing.T
	made int
}

// canary begins each secret value.
const canary = "Canary7"

func (c *canaries) next() string {
	c.made++
	return fmt.Sprintf("%sx%02d", canary, c.made)
}

func (c *canaries) pack(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		c.t.Fatal(err)
	}
	return a
}

// object has a secret under each of these names.
func (c *canaries) object(names ...string) *structpb.Struct {
	out := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for _, n := range names {
		out.Fields[n] = structpb.NewStringValue(c.next())
	}
	return out
}

func (c *canaries) headers(names ...string) (out []*corev3.HeaderValueOption) {
	for _, n := range names {
		out = append(out, &corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: n, Value: c.next()}})
	}
	return out
}

func (c *canaries) matcher() *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: c.next()}}
}

func (c *canaries) source() *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: c.next()}}
}

// secretNames are names of secrets.
var secretNames = []string{"password", "api_key", "client_secret", "authorization_header", "signing_key", "encryption_key", "hmac_key",
	"Ocp-Apim-Subscription-Key", "basic_auth", "pwd", "connection_string", "x-auth-token"}

// resources has secrets in clusters, listeners, routes and extension configs.
func (c *canaries) resources() map[string]proto.Message {
	cluster := &clusterv3.Cluster{Name: "web",
		Metadata: &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"x": c.object(secretNames...)}},
		TransportSocket: &corev3.TransportSocket{Name: "tls", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: c.pack(&tlsv3.UpstreamTlsContext{
			CommonTlsContext: &tlsv3.CommonTlsContext{TlsCertificates: []*tlsv3.TlsCertificate{{PrivateKey: c.source(), Password: c.source()}}}})}}}
	keys := &apikeyv3.ApiKeyAuth{Credentials: []*apikeyv3.Credential{{Key: c.next(), Client: "a"}, {Key: c.next(), Client: "b"}}}
	plugin := wrapperspb.String(`{"zone": "a", "deep": {"api_key": "` + c.next() + `", "header": "Basic ` + c.next() + `"}}`)
	routes := &routev3.RouteConfiguration{Name: "web", RequestHeadersToAdd: c.headers("authorization", "x-api-key", "cookie", "proxy-authorization"),
		VirtualHosts: []*routev3.VirtualHost{{Name: "web", Domains: []string{"*"}, RequestHeadersToAdd: c.headers("x-auth-token", "Ocp-Apim-Subscription-Key"),
			Routes: []*routev3.Route{{Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"},
				Headers: []*routev3.HeaderMatcher{{Name: "authorization", HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: c.matcher()}}},
				Cookies: []*routev3.CookieMatcher{{Name: "session-token", StringMatch: c.matcher()}}},
				Action:                 &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: 200}},
				RequestHeadersToRemove: []string{"x"}, ResponseHeadersToAdd: c.headers("set-cookie")}}}}}
	return map[string]proto.Message{
		resource.ClusterType:  cluster,
		resource.RouteType:    routes,
		resource.ListenerType: &listenerv3.Listener{Name: "web", StatPrefix: "public", Metadata: &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"x": c.object(secretNames...)}}},
		resource.ExtensionConfigType: &corev3.TypedExtensionConfig{Name: "web", TypedConfig: c.pack(&listenerv3.Listener{Name: "inner",
			ListenerFilters: []*listenerv3.ListenerFilter{
				{Name: "keys", ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: c.pack(keys)}},
				{Name: "plugin", ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: c.pack(plugin)}}}})},
	}
}

// What is hidden in a resource or a node is hidden wherever it is quoted: in the log, traces, admin
// answers, CSDS and the output of commands, also if a client's NACK quotes whole resources.
func TestP17_CanariesAreNowhere(t *testing.T) {
	for _, up := range upstreams {
		t.Run(up, func(t *testing.T) {
			c := &canaries{t: t}
			collector := otlptest.New(t)
			o := origin(t, xdstest.Linear)
			all := c.resources()
			for _, m := range all {
				o.Put("edge", m)
			}
			store := t.TempDir()
			r := serve(t, o.Address, xdstest.Config{"upstream.variant": up, "log.level": "debug", "admin.grpc_address": "127.0.0.1:0",
				"tracing.otlp_endpoint": collector.Address, "tracing.sample": 1.0, "store.path": store})
			seen := 0
			for _, v := range variants {
				id := fmt.Sprint("edge-", v)
				for url, m := range all {
					n := node(id, "edge")
					n.Metadata = c.object(append(secretNames, "password-of-node")...)
					s := xdstest.OpenStream(t, r.Address, methods[v])
					s.Ask(n, url, "web")
					quoted := prototext.Format(m)
					s.Nack(url, s.Next().Nonce, "Proto constraint validation failed: "+quoted+" equal keys: "+regexp.MustCompile(canary+`\w+`).FindString(quoted), "web")
					seen++
				}
			}
			r.WaitMetric(float64(seen)/float64(len(all)), "downstream_nacks_total", "type", "CDS")
			if c.made < 50 {
				t.Fatalf("only %d canaries", c.made)
			}

			check := func(what, text string, want ...string) {
				t.Helper()
				if at := strings.Index(text, canary); at >= 0 {
					t.Errorf("%s shows a canary: %s", what, text[max(0, at-200):min(len(text), at+40)])
				}
				for _, w := range want {
					if !strings.Contains(text, w) {
						t.Errorf("%s has no %q: %.600s", what, w, text)
					}
				}
			}
			for path, want := range map[string]string{
				"/server_info": "", "/keys": "edge", "/keys/edge": "edge", "/clients": "edge-", "/clients/" + fmt.Sprint("edge-", variants[0]): "password",
				"/nacks": "constraint", "/nacks?diff=true": "[redacted]", "/diff/" + fmt.Sprint("edge-", variants[0]): "[redacted]", "/config_dump?key=edge": "public",
				"/resources?key=edge": "web", "/origins": o.Address, "/find?text=edge": "edge", "/metrics": "xdsrelay", "/history": "", "/": "",
			} {
				body, err := r.Get(path)
				if err != nil {
					t.Errorf("%s: %v", path, err)
				}
				check(path, string(body), want)
			}
			for _, args := range []string{"status", "status --summary", "keys", "nacks", "nacks --diff", "origins", "dump --key edge", "diff edge-" + fmt.Sprint(variants[0])} {
				out, _ := r.Run(strings.Fields(args)...)
				check("relay "+args, out)
			}
			conn := xdstest.Dial(t, r.operators(), insecure.NewCredentials())
			view, err := statusv3.NewClientStatusDiscoveryServiceClient(conn).FetchClientStatus(t.Context(), &statusv3.ClientStatusRequest{})
			if err != nil {
				t.Fatal(err)
			}
			check("CSDS", prototext.Format(view), "public", "constraint validation failed")
			check("the log", r.Log(), "client rejected a response", "constraint validation failed")
			r.Stop() // which sends waiting spans
			spans := ""
			for _, name := range []string{"xds.update", "xds.ack", "xds.update.fanout"} {
				spans += fmt.Sprint(collector.Spans(name))
			}
			check("traces", spans, "edge")
			check("the log", r.Log())
			// The store keeps the resources as they are, but nothing of nodes and NACKs.
			for _, f := range storedFiles(t, store) {
				if strings.Contains(f, "constraint") || strings.Contains(f, "password-of-node") {
					t.Errorf("the store has a NACK or a node")
				}
			}
		})
	}
}

// storedFiles returns the contents of the files of a store.
func storedFiles(t *testing.T, dir string) (out []string) {
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		out = append(out, string(b))
		return err
	})
	if err != nil || len(out) == 0 {
		t.Errorf("%d files in the store: %v", len(out), err)
	}
	return out
}
