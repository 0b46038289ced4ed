package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	_ "xdsrelay/internal/anytypes" // links the types of filters
	"xdsrelay/internal/fanout/tokens/tokenstest"
	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/telemetry/tracing/otlptest"
	"xdsrelay/internal/xdstest"
)

// canary begins each secret value that nobody may see.
const canary = "Canary7"

// wholeCanary matches a quoted value that is a secret as a whole.
var wholeCanary = regexp.MustCompile(`[^\\]"(` + canary + `x\w+)"`)

// canaries makes resources with secrets in them.
type canaries struct {
	t    *testing.T
	made int
}

// read reads a message from JSON, in which each $ is a secret value of its own.
func (c *canaries) read(text string, into proto.Message) {
	c.t.Helper()
	text = regexp.MustCompile(`\$`).ReplaceAllStringFunc(text, func(string) string {
		c.made++
		return fmt.Sprintf("%sx%03d", canary, c.made)
	})
	if err := protojson.Unmarshal([]byte(text), into); err != nil {
		c.t.Fatalf("%v: %s", err, text)
	}
}

// entries are fields of an object, each with the name of a secret.
const entries = `"password": "$", "api_key": "$", "client_secret": "$", "authorization_header": "$", "signing_key": "$", "encryption_key": "$", ` +
	`"hmac_key": "$", "Ocp-Apim-Subscription-Key": "$", "basic_auth": "$", "pwd": "$", "connection_string": "$", "x-auth-token": "$", "json_key": "$", "shared_key": "$", "DB_PASS": "$", "psk": "$", "deep": [{"api_key": "$"}]`

// filters are extension configs by their names.
var filters = map[string]string{
	"api-key-auth": `{"@type": "type.googleapis.com/envoy.extensions.filters.http.api_key_auth.v3.ApiKeyAuth",
		"credentials": [{"key": "$", "client": "a"}, {"key": "$", "client": "b"}]}`,
	"basic-auth": `{"@type": "type.googleapis.com/envoy.extensions.filters.http.basic_auth.v3.BasicAuth", "users": {"inline_string": "user:{SHA}$"}}`,
	"aws": `{"@type": "type.googleapis.com/envoy.extensions.filters.http.aws_request_signing.v3.AwsRequestSigning", "service_name": "s3",
		"credential_provider": {"inline_credential": {"access_key_id": "$", "secret_access_key": "$", "session_token": "$"}}}`,
	"credentials": `{"@type": "type.googleapis.com/envoy.extensions.filters.http.credential_injector.v3.CredentialInjector", "credential": {"name": "oauth2",
		"typed_config": {"@type": "type.googleapis.com/envoy.extensions.http.injected_credentials.oauth2.v3.OAuth2",
			"token_endpoint": {"uri": "https://user:$@auth.example/token?api_key=$", "cluster": "auth", "timeout": "1s"},
			"endpoint_params": [{"name": "client_secret", "value": "$"}, {"name": "password", "value": "$"}]}}}`,
	"ext-authz": `{"@type": "type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthz", "grpc_service": {
		"google_grpc": {"target_uri": "auth", "stat_prefix": "auth", "call_credentials": [{"access_token": "$"}, {"google_refresh_token": "$"}, {"service_account_jwt_access": {"json_key": "$"}}],
			"channel_credentials": {"ssl_credentials": {"private_key": {"inline_string": "$"}}}},
		"initial_metadata": [{"key": "authorization", "value": "Basic $"}, {"key": "x-api-key", "raw_value": "Q2FuYXJ5N3hyYXc="}]}}`,
	"headers": `{"@type": "type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation", "mutations": {"request_mutations": [
		{"append": {"header": {"key": "authorization", "value": "$"}}}, {"append": {"header": {"key": "x-trace", "value": "Bearer $"}}}]}}`,
	"jwt": `{"@type": "type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication", "providers": {"idp": {
		"issuer": "idp", "local_jwks": {"inline_string": "{\"keys\": [{\"kty\": \"oct\", \"k\": \"$\"}]}"}}}}`,
	"lua": `{"@type": "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua",
		"default_source_code": {"inline_string": "local api_key = '$'\nh:headers():add('authorization', 'Bearer $')\nh:headers():add('x-api-key', '$')"}}`,
	"metadata": `{"@type": "type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config", "metadata": [{"metadata_namespace": "x", "value": {` + entries + `}}]}`,
	"rbac": `{"@type": "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC", "rules": {"policies": {"p": {
			"permissions": [{"header": {"name": "x-api-key", "string_match": {"exact": "$"}}}],
			"principals": [{"metadata": {"filter": "x", "path": [{"key": "client_secret"}], "value": {"string_match": {"exact": "$"}}}}]}}},
		"shadow_matcher": {"matcher_tree": {
			"input": {"name": "in", "typed_config": {"@type": "type.googleapis.com/envoy.type.matcher.v3.HttpRequestHeaderMatchInput", "header_name": "authorization"}},
			"exact_match_map": {"map": {"$": {"action": {"name": "allow", "typed_config": {"@type": "type.googleapis.com/envoy.config.rbac.v3.Action", "name": "allow"}}}}}}}}`,
	"redis": `{"@type": "type.googleapis.com/envoy.extensions.filters.network.redis_proxy.v3.RedisProxy", "stat_prefix": "redis",
		"downstream_auth_passwords": [{"inline_string": "$"}]}`,
	"state": `{"@type": "type.googleapis.com/envoy.extensions.filters.http.set_filter_state.v3.Config", "on_request_headers": [
		{"object_key": "x-api-key", "factory_key": "envoy.string", "format_string": {"text_format_source": {"inline_string": "$"}}},
		{"object_key": "shared_key", "format_string": {"json_format": {"a": "$"}}}, {"object_key": "client_secret", "format_string": {"text_format": "$"}}]}`,
	"state-of-connections": `{"@type": "type.googleapis.com/envoy.extensions.filters.network.set_filter_state.v3.Config", "on_new_connection": [
		{"object_key": "api_key", "format_string": {"text_format_source": {"inline_bytes": "Q2FuYXJ5N3hyYXc="}}}]}`,
	"struct": `{"@type": "type.googleapis.com/xds.type.v3.TypedStruct", "type_url": "type.googleapis.com/acme.Filter",
		"value": {"token": {"a": "$", "b": ["$"]}, "headers": [{"name": "authorization", "value": "$"}], ` + entries + `}}`,
	"wasm-yaml": `{"@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm", "config": {"name": "plugin",
		"configuration": {"@type": "type.googleapis.com/google.protobuf.StringValue", "value": "zone: a\noidc:\n  client_secret: $\n  cookie: \"$\"\n"},
		"vm_config": {"code": {"remote": {"http_uri": {"uri": "https://bucket.example/a.wasm?X-Amz-Signature=$", "cluster": "s3", "timeout": "1s"}, "sha256": "00"}}}}}`,
	"wasm": `{"@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm", "config": {"name": "plugin",
		"configuration": {"@type": "type.googleapis.com/google.protobuf.StringValue", "value": "{\"zone\": \"a\", \"deep\": {\"api_key\": \"$\", \"header\": \"Basic $\"}}"},
		"vm_config": {"environment_variables": {"key_values": {"API_KEY": "$", "DB_PASSWORD": "$"}}}}}`,
}

// resources have secrets in clusters, listeners, routes and filters. Each is by name: its type has
// it.
func (c *canaries) resources() (out []proto.Message) {
	for url, text := range map[string]string{
		resource.ClusterType: `{"name": "web", "metadata": {"filter_metadata": {"x": {` + entries + `}}}, "transport_socket": {"name": "tls", "typed_config": {
			"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext", "common_tls_context": {"tls_certificates": [
				{"private_key": {"inline_string": "$"}, "password": {"inline_string": "$"}}]}}}}`,
		resource.ListenerType: `{"name": "web", "stat_prefix": "public", "metadata": {"filter_metadata": {"x": {` + entries + `}}}}`,
		resource.RouteType: `{"name": "web", "virtual_hosts": [{"name": "web", "domains": ["*"], "request_headers_to_add": [{"header": {"key": "x-auth-token", "value": "$"}}],
			"routes": [{"match": {"prefix": "/", "headers": [{"name": "authorization", "string_match": {"exact": "$"}}], "cookies": [{"name": "session-token", "string_match": {"exact": "$"}}]},
				"direct_response": {"status": 200}, "response_headers_to_add": [{"header": {"key": "set-cookie", "value": "$"}}]}]}],
			"request_headers_to_add": [{"header": {"key": "authorization", "value": "$"}}, {"header": {"key": "cookie", "value": "$"}}, {"header": {"key": "x-trace", "value": "Basic $"}}]}`,
	} {
		a := &anypb.Any{}
		c.read(`{"@type": "`+url+`", `+text[1:], a)
		m, err := a.UnmarshalNew()
		if err != nil {
			c.t.Fatal(err)
		}
		out = append(out, m)
	}
	for name, text := range filters {
		f := &corev3.TypedExtensionConfig{Name: name, TypedConfig: &anypb.Any{}}
		c.read(text, f.TypedConfig)
		out = append(out, f)
	}
	unknown := &anypb.Any{TypeUrl: "type.googleapis.com/acme.Filter", Value: []byte(canary + "unknown")}
	return append(out, &corev3.TypedExtensionConfig{Name: "unknown", TypedConfig: unknown})
}

// node is a node with secrets.
func (c *canaries) node(id, cluster string) *corev3.Node {
	n := new(corev3.Node)
	c.read(`{"id": "`+id+`", "cluster": "`+cluster+`", "metadata": {`+entries+`, "password-of-node": "$", "zone": "a"},
		"dynamic_parameters": {"x": {"params": {"token": "$"}}}}`, n)
	return n
}

// hides fails the test if a text has a canary, or lacks what proves that it is not empty.
func (c *canaries) hides(what, text string, want ...string) {
	c.t.Helper()
	if at := strings.Index(text, canary); at >= 0 {
		c.t.Errorf("%s shows a canary: %s", what, text[max(0, at-200):min(len(text), at+40)])
	}
	for _, w := range want {
		if !strings.Contains(text, w) {
			c.t.Errorf("%s has no %q: %.600s", what, w, text)
		}
	}
}

// proves are texts that show that an answer is about what has the secrets.
var proves = map[string][]string{
	"GET /keys": {"edge"}, "GET /keys/edge": {"constraint"}, "GET /clients": {"edge-sotw", "edge-delta"},
	"GET /clients/edge-sotw": {"password", "[redacted]", "zone"}, "GET /nacks": {"constraint", "[redacted]", "may contain the Secret"},
	"GET /nacks?diff=true": {"[redacted]"}, "GET /diff/edge-sotw": {"[redacted]"}, "GET /config_dump?key=edge": {"public", "[redacted]", "wasm", "acme.Filter", "idp"},
	"GET /resources?key=edge": {"wasm"}, "GET /find?text=e": {"edge"}, "GET /events": {"edge"}, "GET /metrics": {"xdsrelay_"},
	"POST /explain": {"node.metadata.password", "[redacted]"}, "POST /explain/diff": {"edge-sotw"}, "CSDS": {"public", "constraint"},
	"relay status": {"edge-sotw", "constraint"}, "relay nacks": {"constraint"}, "relay nacks --diff": {"[redacted]"}, "relay keys": {"edge"},
	"relay dump --key edge": {"public", "[redacted]"}, "relay diff edge-sotw": {"[redacted]"}, "relay explain --node NODE": {"[redacted]"},
	"relay explain --diff FILE": {"clients"}, "relay wait --type CDS --version 1 --timeout 1s --every 100ms --key edge": {"edge"},
}

// What is hidden in a resource or a node is hidden wherever it is quoted: in the log, traces, admin
// answers, CSDS and the output of commands, also if a client's NACK quotes whole resources.
func TestP17_CanariesAreNowhere(t *testing.T) {
	t.Parallel()
	for _, up := range upstreams {
		t.Run(up, func(t *testing.T) {
			t.Parallel()
			c := &canaries{t: t}
			collector := otlptest.New(t)
			o := origin(t, xdstest.Linear)
			all := c.resources()
			for _, m := range all {
				o.Put("edge", m)
			}
			secret := new(tlsv3.Secret)
			c.read(`{"name": "s", "generic_secret": {"secret": {"inline_string": "TheSecret-$"}}}`, secret)
			o.Put("edge", secret)
			store := t.TempDir()
			config := xdstest.QuickConfig().With(xdstest.Config{"upstream.origins": xdstest.Origins(o.Address), "upstream.variant": up, "log.level": "debug",
				"admin.grpc_address": "127.0.0.1:0", "downstream.rest_address": "127.0.0.1:0", "downstream.secrets": "allow", "metrics.key_label": true,
				"tracing.otlp_endpoint": collector.Address, "tracing.sample": 1.0, "store.path": store,
				"aggregation.rules": []map[string]any{
					{"match": `node.metadata.password == "x"`, "key": "node.id"},
					{"match": `int(node.metadata.signing_key) > 3`, "key": "node.id"},
					{"match": `node.cluster == "edge"`, "key": "node.cluster"}}})
			file := config.WriteFile(t)
			r := start(t, "", nil, "serve", "--config", file)

			quote := func(m proto.Message) []string {
				text, asJSON := prototext.Format(m), protojson.Format(m)
				out := []string{text, asJSON, asJSON[:len(asJSON)/2]}
				if m := wholeCanary.FindStringSubmatch(text); m != nil {
					out[0] += " equal keys: " + m[1]
				}
				return out
			}
			all = append(all, secret)
			for i, v := range variants {
				id := []string{"edge-sotw", "edge-delta"}[i]
				conn := xdstest.Dial(t, r.Address, nil)
				names := make(map[string][]string)
				for _, m := range all {
					url, name := xdstest.NameOf(m)
					names[url] = append(names[url], name)
				}
				first := xdstest.OpenStreamUntil(t, t.Context(), conn, methods[v])
				for url, of := range names { // one after the other, so that each is acknowledged
					first.Ask(c.node(id, "edge"), url, of...)
					first.Ack(of...)
				}
				for _, m := range all {
					url, name := xdstest.NameOf(m)
					for _, q := range quote(m) {
						s := xdstest.OpenStreamUntil(t, t.Context(), conn, methods[v])
						s.Ask(c.node(id, "edge"), url, name)
						s.Nack(url, s.Next().Nonce, "Proto constraint validation failed: "+q, name)
					}
				}
				s := xdstest.OpenStream(t, r.Address, methods[v])
				s.Ask(c.node("stranger", "nobody"), resource.ClusterType)
				c.hides("the refusal", s.WantEnd(codes.PermissionDenied).Message(), "no aggregation rule")
			}
			r.WaitMetric(float64(2*3*len(all)), "downstream_nacks_total")
			// A poll that rejects what the poll before brought.
			n := c.node("rejects", "edge")
			cluster := slices.IndexFunc(all, func(m proto.Message) bool { url, _ := xdstest.NameOf(m); return url == resource.ClusterType })
			first := r.ask(http.DefaultClient, n, resource.ClusterType, "").answer
			rejects := &discoveryv3.DiscoveryRequest{Node: n, ResponseNonce: first.GetVersionInfo(), ErrorDetail: &statuspb.Status{Code: 3, Message: "constraint: " + fmt.Sprint(quote(all[cluster]))}}
			ctx, cancel := context.WithCancel(t.Context())
			held := make(chan error, 1)
			go func() {
				_, err := poll(ctx, http.DefaultClient, "http://"+r.RESTAddress, resource.ClusterType, rejects)
				held <- err
			}()
			r.WaitMetric(float64(2*3*len(all)+1), "downstream_nacks_total")
			cancel()
			<-held
			polled, err := protojson.Marshal(c.node("polls", "edge"))
			if err != nil {
				t.Fatal(err)
			}
			for body, want := range map[string]int{
				`{"node": ` + string(polled) + `, "error_detail": {"message": "` + canary + `said"}}`: http.StatusOK,
				`{"node": ` + string(polled) + `, "version_info": {"` + canary + `field": 1}}`:        http.StatusBadRequest,
				`{"node": ` + string(polled) + `, "version_info": ` + canary + `bare}`:                http.StatusBadRequest,
			} {
				resp, err := http.Post("http://"+r.RESTAddress+"/v3/discovery:clusters", "application/json", strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				said, err := io.ReadAll(resp.Body)
				if err = errors.Join(err, resp.Body.Close()); err != nil || resp.StatusCode != want {
					t.Errorf("%s: %s, %v", body, resp.Status, err)
				}
				if want != http.StatusOK {
					c.hides("the poll", string(said), "error")
				}
			}
			if c.made < 50 {
				t.Fatalf("only %d canaries", c.made)
			}

			shown := r.everything(t, "edge", c.node("edge-sotw", "edge"))
			for what, text := range shown {
				c.hides(what, text, proves[what]...)
			}
			for what := range proves {
				if _, ok := shown[what]; !ok {
					t.Errorf("nobody asked for %s", what)
				}
			}
			// A reload with a secret in a wrong place.
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err = os.WriteFile(file, bytes.Replace(text, []byte("level: debug"), []byte("level: Basic "+canary+"reload"), 1), 0o600); err != nil {
				t.Fatal(err)
			}
			said, _ := xdstest.Command(t, "reload", "--admin", r.Admin).CombinedOutput() // it fails
			c.hides("relay reload", string(said), "[redacted]")
			c.hides("/reload", r.asked(t, "POST /reload", ""), "[redacted]")
			c.hides("/server_info", r.asked(t, "GET /server_info", ""), "[redacted]")
			r.Stop() // which sends waiting spans
			c.hides("traces", fmt.Sprint(collector.Spans("")), "edge", "xds.ack")
			c.hides("the log", r.Log(), "client rejected a response", "constraint validation failed")
			// The store keeps the resources as they are, but no Secret, and nothing of nodes and NACKs.
			var stored strings.Builder
			for _, path := range kept(t, store) {
				b, err := os.ReadFile(path)
				if err != nil {
					t.Error(err)
				}
				stored.WriteString(filepath.Base(path) + string(b))
			}
			if !strings.Contains(stored.String(), canary) {
				t.Error("the store has no resources")
			}
			for _, not := range []string{"constraint", "password-of-node", "TheSecret"} {
				if strings.Contains(stored.String(), not) {
					t.Errorf("the store has %s", not)
				}
			}
		})
	}
}

// No token is shown, and no claim but iss, sub and aud, also if a rule that reads a claim fails.
func TestCanariesInTokens(t *testing.T) {
	t.Parallel()
	c, issuer, collector := &canaries{t: t}, tokenstest.New(t), otlptest.New(t)
	o := origin(t, xdstest.Linear)
	o.Put("edge", xdstest.Cluster("web", 1))
	own := issuer.Token(tokenstest.Claims("relay"))
	r := serve(t, o.Address, xdstest.Config{"log.level": "debug", "admin.grpc_address": "127.0.0.1:0", "metrics.key_label": true,
		"tracing.otlp_endpoint": collector.Address, "tracing.sample": 1.0, "downstream.tokens": tokensOf(issuer),
		"upstream.origins":    []map[string]any{{"address": o.Address, "token_file": tlstest.File(t, t.TempDir(), "token", []byte(own))}},
		"downstream.identity": `{"` + canary[:3] + `": true}[peer.token.team[0]] || peer.token.sub == node.id`,
		"aggregation.rules": []map[string]any{
			{"match": `timestamp(peer.token.role) > timestamp(0)`, "key": "node.id"},
			{"match": `dyn(peer) == peer.token.role`, "key": "node.id"},
			{"match": `node.cluster == "edge"`, "key": "node.cluster"}}})
	claims := tokenstest.Claims("pod")
	claims["role"], claims["team"] = canary+"role", []string{canary + "team"}
	token := issuer.Token(claims)
	s := openAs(t, r, token, "pod", true)
	gets(t, s, xdstest.Cluster("web", 1))
	c.hides("the refusal", openAs(t, r, token, "other", true).WantEnd(codes.PermissionDenied).Message(), "quotes a claim")
	shown := r.everything(t, "edge", node("pod", "edge"))
	shown["GET /explain"] = r.asked(t, "GET /explain?node=pod", "")
	r.Stop() // which sends waiting spans
	shown["the log"], shown["traces"] = r.Log(), fmt.Sprint(collector.Spans(""))
	for what, text := range shown {
		c.hides(what, text)
		for _, part := range append(strings.Split(token, ".")[1:], strings.Split(own, ".")[1:]...) {
			if strings.Contains(text, part) {
				t.Errorf("%s has a part of a token", what)
			}
		}
	}
	c.hides("GET /explain", shown["GET /explain"], "peer.token.role", "(hidden)", "quotes a claim")
	c.hides("GET /clients", shown["GET /clients"], "sub:pod")
}

// The parsers of an origin's files quote no value, wherever the error is shown.
func TestP80_CanariesInFiles(t *testing.T) {
	t.Parallel()
	d := &directory{t: t, path: t.TempDir()}
	d.write("clusters.json", xdstest.Cluster("web", 1))
	r := serve(t, "file://"+d.path, xdstest.Config{"log.level": "debug"})
	s := xdstest.OpenStream(t, r.Address, xdstest.DeltaMethod)
	s.Ask(node("n", "mesh"), resource.ClusterType)
	s.Next()
	for name, text := range map[string]string{
		"bare.json":      `{"type_url": %s}`,
		"wrong.json":     `{"type_url": "` + resource.ClusterType + `", "resources": [{"@type": "` + resource.ClusterType + `", "name": {"a": "%s"}}]}`,
		"bare.yaml":      "resources: [{a: *%s}]",
		"wrong.yaml":     "type_url: " + resource.ClusterType + "\nresources: [{'@type': " + resource.ClusterType + ", connect_timeout: %s}]",
		"bare.textproto": "type_url: %s",
		"enum.textproto": `type_url: "` + resource.ClusterType + `" resources { [` + resource.ClusterType + `] { lb_policy: %s } }`,
	} {
		d.raw(name, fmt.Sprintf(text, canary+"inafile"))
	}
	r.WaitMetric(6, "upstream_rejected_total", "reason", "unreadable")
	c := &canaries{t: t}
	for what, text := range r.everything(t, "mesh", node("n", "mesh")) {
		c.hides(what, text)
		if strings.Contains(what, "origins") && !strings.Contains(text, "enum.textproto") {
			t.Errorf("%s: %s", what, text)
		}
	}
	c.hides("the log", r.Log(), "enum.textproto", "wrong.yaml")
}

// kept returns the files below a directory, without the lock file.
func kept(t *testing.T, dir string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && d.Name() != "lock" {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// Operators and clients see the error with which an origin ends a stream.
func TestP6_ErrorsOfOriginsAreRedacted(t *testing.T) {
	t.Parallel()
	const hidden = "the-key-that-nobody-may-see"
	f := xdstest.StartScriptedOrigin(t)
	f.EndStreams(status.Error(codes.PermissionDenied, `wrong credentials in postgres://relay:`+hidden+`@db/xds`))
	r := serve(t, f.Address, xdstest.Config{"log.level": "debug"})
	for _, v := range variants {
		s := xdstest.OpenStream(t, r.Address, methods[v])
		s.Ask(node("n", "mesh"), resource.ClusterType)
		if told := s.WantEnd(codes.Unavailable).Message(); strings.Contains(told, hidden) || !strings.Contains(told, "wrong credentials") {
			t.Errorf("%s is told %q", v, told)
		}
	}
	shown := together(r.everything(t, "mesh", node("n", "mesh")))
	if !strings.Contains(shown, "wrong credentials") || strings.Contains(shown+r.Log(), hidden) {
		t.Errorf("shown:\n%s\nlog:\n%s", shown, r.Log())
	}
}
