package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/xds"

	"xdsrelay/internal/fanout/tokens/tokenstest"
	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/xdstest"
)

// tokenOrigin is what an origin that identifies clients by tokens does with each stream.
type tokenOrigin struct {
	issuer *tokenstest.Issuer
	// check is asked at each request, which it may change.
	check func(claims map[string]any, node *corev3.Node) error
	code  codes.Code // of a stream without a valid token

	mu   sync.Mutex
	seen []string // "token's subject and pod, node's id" of each stream
}

func (o *tokenOrigin) intercept(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	md, _ := metadata.FromIncomingContext(ss.Context())
	token, _ := strings.CutPrefix(strings.Join(md.Get("authorization"), ""), "Bearer ")
	claims, err := o.issuer.Open(token)
	if err != nil {
		return status.Error(o.code, "authentication failed")
	}
	return next(srv, &tokenStream{ServerStream: ss, of: o, claims: claims})
}

type tokenStream struct {
	grpc.ServerStream
	of     *tokenOrigin
	claims map[string]any
	noted  bool
}

func (s *tokenStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	node := m.(interface{ GetNode() *corev3.Node }).GetNode()
	if !s.noted {
		s.noted = true
		s.of.mu.Lock()
		s.of.seen = append(s.of.seen, fmt.Sprintf("%s/%s as %s", s.claims["sub"], podOf(s.claims), node.GetId()))
		s.of.mu.Unlock()
	}
	if node == nil {
		return nil
	}
	return s.of.check(s.claims, node)
}

func (o *tokenOrigin) streams() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.seen)
}

// podOf is the pod in a token of Kubernetes.
func podOf(claims map[string]any) string {
	k, _ := claims["kubernetes.io"].(map[string]any)
	pod, _ := k["pod"].(map[string]any)
	name, _ := pod["name"].(string)
	return name
}

// podToken is a token of Kubernetes for a pod.
func podToken(i *tokenstest.Issuer, account, pod string, valid time.Duration) string {
	c := tokenstest.Claims(account)
	c["exp"] = time.Now().Add(valid).Unix()
	c["kubernetes.io"] = map[string]any{"pod": map[string]any{"name": pod}}
	return i.Token(c)
}

func tokensOf(i *tokenstest.Issuer) map[string]any {
	return map[string]any{"issuer": tokenstest.URL, "audiences": []string{tokenstest.Audience}, "jwks_file": i.File}
}

// openAs opens a stream with a token and asks for clusters.
func openAs(t *testing.T, r *relay, token, id string, delta bool) *xdstest.Stream {
	t.Helper()
	method := xdstest.SotWMethod
	if delta {
		method = xdstest.DeltaMethod
	}
	ctx := metadata.AppendToOutgoingContext(xdstest.Context(t), "authorization", "Bearer "+token)
	s := xdstest.OpenStreamUntil(t, ctx, xdstest.Dial(t, r.Address, nil), method)
	s.Ask(&corev3.Node{Id: id, Cluster: "edge"}, resource.ClusterType)
	return s
}

// kgateway serves SotW in plaintext, gives each service account its own resources, and answers a
// stream without a valid token with the code Unknown.
func TestTokensOfRepresentativesAtKgateway(t *testing.T) {
	t.Parallel()
	issuer := tokenstest.New(t)
	o := &tokenOrigin{issuer: issuer, code: codes.Unknown}
	o.check = func(k map[string]any, n *corev3.Node) error { n.Cluster = k["sub"].(string); return nil }
	origin := xdstest.StartOrigin(t, xdstest.OriginOptions{Server: []grpc.ServerOption{grpc.StreamInterceptor(o.intercept)}})
	origin.Put("a", &clusterv3.Cluster{Name: "of-a"})
	origin.Put("b", &clusterv3.Cluster{Name: "of-b"})
	conf := xdstest.QuickConfig().With(xdstest.Config{
		"upstream.origins": []map[string]any{{"name": "kgateway", "address": origin.Address, "token": "representative"}},
		"upstream.variant": "sotw", "downstream.tokens": tokensOf(issuer),
	})
	r := start(t, "", nil, "serve", "--config", conf.WriteFile(t))

	var given []string // all tokens, none of which may be shown
	token := func(account string, valid time.Duration) string {
		given = append(given, podToken(issuer, account, "", valid))
		return given[len(given)-1]
	}
	// Two identities of one node get their own resources.
	a := openAs(t, r, token("a", time.Hour), "n", false)
	gets(t, a, &clusterv3.Cluster{Name: "of-a"})
	b := openAs(t, r, token("b", 8*time.Second), "n", false)
	gets(t, b, &clusterv3.Cluster{Name: "of-b"})
	openAs(t, r, "eyJ", "n", false).WantEnd(codes.Unauthenticated)

	// While the origin is away, the only token of b expires. Its client returns with a new one.
	origin.Stop()
	xdstest.Eventually(t, "the client of b is asked for a new token", func() error {
		_, err := b.Receive()
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "token") {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
	again := openAs(t, r, token("b", time.Hour), "n", false)
	gets(t, again, &clusterv3.Cluster{Name: "of-b"}) // held
	origin.Put("b", &clusterv3.Cluster{Name: "of-b", AltStatName: "new"})
	origin.Start()
	again.Ask(nil, resource.ClusterType)
	xdstest.Eventually(t, "b gets the change", func() error {
		if got := again.Next(); !strings.Contains(fmt.Sprint(got.Resources), "new") {
			return fmt.Errorf("got %v", got.Resources)
		}
		return nil
	})
	wantHidden(t, r, given)
}

// Envoy Gateway compares node.id with the pod in the token. Token and node are always those of one
// client, also when that client leaves.
func TestTokenAndNodeAreOfOneClientAtEnvoyGateway(t *testing.T) {
	t.Parallel()
	issuer, ca := tokenstest.New(t), tlstest.NewAuthority(t)
	o := &tokenOrigin{issuer: issuer, code: codes.Unauthenticated}
	o.check = func(k map[string]any, n *corev3.Node) error {
		if n.Id != podOf(k) {
			return status.Errorf(codes.PermissionDenied, "node %s with the token of pod %s", n.Id, podOf(k))
		}
		return nil
	}
	origin := xdstest.StartOrigin(t, xdstest.OriginOptions{Server: []grpc.ServerOption{grpc.StreamInterceptor(o.intercept),
		grpc.Creds(credentials.NewServerTLSFromCert(new(ca.Pair(t, tlstest.CN("origin"), tlstest.Loopback()).TLS(t))))}})
	origin.Put("edge", &clusterv3.Cluster{Name: "c"})
	conf := xdstest.QuickConfig().With(xdstest.Config{
		"upstream.origins":  []map[string]any{{"address": origin.Address, "token": "representative", "tls": map[string]any{"ca_file": tlstest.File(t, t.TempDir(), "ca", ca.PEM())}}},
		"downstream.tokens": tokensOf(issuer),
	})
	r := start(t, "", nil, "serve", "--config", conf.WriteFile(t))
	ctx, leave := context.WithCancel(metadata.AppendToOutgoingContext(xdstest.Context(t), "authorization", "Bearer "+podToken(issuer, "gateway", "pod-1", time.Hour)))
	one := xdstest.OpenStreamUntil(t, ctx, xdstest.Dial(t, r.Address, nil), xdstest.DeltaMethod)
	one.Ask(&corev3.Node{Id: "pod-1", Cluster: "edge"}, resource.ClusterType)
	gets(t, one, &clusterv3.Cluster{Name: "c"})
	two := openAs(t, r, podToken(issuer, "gateway", "pod-2", time.Minute), "pod-2", true)
	gets(t, two, &clusterv3.Cluster{Name: "c"})
	if keys := r.keys(); len(keys) != 1 {
		t.Errorf("%d keys for one identity", len(keys))
	}
	leave() // the next stream is that of pod-2
	xdstest.Eventually(t, "pod-1 leaves", func() error {
		if n := r.keys()[0].Members; n != 1 {
			return fmt.Errorf("%d members", n)
		}
		return nil
	})
	origin.Stop()
	origin.Start()
	want := []string{"gateway/pod-1 as pod-1", "gateway/pod-2 as pod-2"}
	xdstest.Eventually(t, "the next stream", func() error {
		if got := slices.Compact(o.streams()); !slices.Equal(got, want) {
			return fmt.Errorf("the origin saw %q, want %q", got, want)
		}
		return nil
	})
}

// The relay's own token is read for each stream, without the newline at its end.
func TestTokenFile(t *testing.T) {
	t.Parallel()
	issuer := tokenstest.New(t)
	o := &tokenOrigin{issuer: issuer, code: codes.Unknown, check: func(map[string]any, *corev3.Node) error { return nil }}
	origin := xdstest.StartOrigin(t, xdstest.OriginOptions{Server: []grpc.ServerOption{grpc.StreamInterceptor(o.intercept)}})
	origin.Put("edge", &clusterv3.Cluster{Name: "c"})
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	bad := tokenstest.New(t).Token(tokenstest.Claims("relay")) // of another issuer
	write(bad)
	conf := xdstest.QuickConfig().With(xdstest.Config{"upstream.origins": []map[string]any{{"name": "kgateway", "address": origin.Address, "token_file": file}}})
	r := start(t, "", nil, "serve", "--config", conf.WriteFile(t))
	s := xdstest.OpenStream(t, r.Address, xdstest.DeltaMethod)
	s.Ask(&corev3.Node{Id: "n", Cluster: "edge"}, resource.ClusterType)
	s.WantEnd(codes.Unavailable)
	if out, err := r.Get("/origins"); err != nil || !strings.Contains(string(out), "authentication failed") {
		t.Errorf("the origin's reason is not shown: %v\n%s", err, out)
	}
	good := issuer.Token(tokenstest.Claims("relay"))
	write(good)
	xdstest.Eventually(t, "served with the new token", func() error {
		s := xdstest.OpenStream(t, r.Address, xdstest.DeltaMethod)
		s.Send(&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "n", Cluster: "edge"}, TypeUrl: resource.ClusterType})
		_, err := s.Receive()
		return err
	})
	wantHidden(t, r, []string{bad, good})
}

// Keys and tokens rotate while clients are served.
func TestTokensRotate(t *testing.T) {
	const enabled = "GRPC_EXPERIMENTAL_XDS_BOOTSTRAP_CALL_CREDS"
	if text := os.Getenv("GRPC_XDS_BOOTSTRAP_CONFIG"); os.Getenv(enabled) == "true" && text != "" { // the client of rotatesForGRPC
		by, err := xds.NewXDSResolverWithConfigForTesting([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		callUntilEOF(t, dialXDS(t, by, "greeter"))
		return
	}
	t.Parallel()
	for name, away := range map[string]bool{"grpc-go": false, "grpc-go, while the origin is away": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rotatesForGRPC(t, enabled+"=true", away)
		})
	}
}

// rotatesForGRPC runs grpc-go's xDS client, which sends the token in a file (gRFC A97). With on_expiry:
// end its stream ends when the token expires, and the next one has the new token. away: the origin,
// which gets the client's token, is away when the only token expires. No call fails. The client is a
// process of its own, because grpc-go reads the variable when it starts.
func rotatesForGRPC(t *testing.T, enabled string, away bool) {
	issuer, ca := tokenstest.New(t), tlstest.NewAuthority(t)
	seen := &tokenOrigin{issuer: issuer, code: codes.Unauthenticated, check: func(map[string]any, *corev3.Node) error { return nil }}
	tokens, given, subjects := tokensOf(issuer), "", []string{"one", "two"}
	var more []grpc.ServerOption
	if away {
		given, subjects[1] = "representative", "one"
		more = append(more, grpc.StreamInterceptor(seen.intercept))
	} else {
		tokens["on_expiry"] = "end"
	}
	o := origin(t, xdstest.Linear, more...)
	o.Put("grpc", serviceAt("greeter", xdstest.StartGRPCBackend(t, "blue").Port)...)
	dir := t.TempDir()
	cert, key := ca.Pair(t, tlstest.CN("relay"), tlstest.Loopback()).Write(t, dir, "relay")
	r := serve(t, "", xdstest.Config{
		"upstream.origins":  []map[string]any{{"address": o.Address, "token": given}},
		"downstream.tokens": tokens, "downstream.tls": map[string]any{"cert_file": cert, "key_file": key},
	})
	var tokensGiven []string
	give := func(subject, pod string, valid time.Duration) (expires time.Time) {
		token := podToken(issuer, subject, pod, valid)
		tokensGiven = append(tokensGiven, token)
		tlstest.File(t, dir, "token", []byte(token))
		return time.Now().Add(valid)
	}
	expires := give(subjects[0], "first", 8*time.Second)
	text, err := json.Marshal(map[string]any{
		"node": map[string]any{"id": "grpc-1", "cluster": "grpc"},
		"xds_servers": []any{map[string]any{"server_uri": r.Address, "server_features": []string{"xds_v3"},
			"channel_creds": []any{map[string]any{"type": "tls", "config": map[string]any{"ca_certificate_file": tlstest.File(t, t.TempDir(), "ca", ca.PEM())}}},
			"call_creds":    []any{map[string]any{"type": "jwt_token_file", "config": map[string]any{"jwt_token_file": filepath.Join(dir, "token")}}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestTokensRotate$")
	cmd.Env = append(os.Environ(), enabled, "GRPC_XDS_BOOTSTRAP_CONFIG="+string(text))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	client := xdstest.StartProcess(t, "grpc-go", cmd, nil)
	identity := func(want string) error {
		if out := r.asked(t, "GET /clients", ""); !strings.Contains(out, `"sub:`+want+`"`) {
			return errors.New(out)
		}
		return nil
	}
	xdstest.Eventually(t, "the first token", func() error {
		if time.Until(expires) < 4*time.Second { // the client has not started yet
			expires = give(subjects[0], "first", 8*time.Second)
		}
		return identity(subjects[0])
	})
	r.WaitMetric(4, "downstream_acks_total")
	if away {
		o.Stop()
	}
	give(subjects[1], "second", time.Hour)
	r.WaitMetric(1, "downstream_ended_total", "reason", "token_renewal")
	xdstest.Eventually(t, "the second token", func() error { return identity(subjects[1]) })
	if away {
		o.Start()
		xdstest.Eventually(t, "the origin gets the new token", func() error {
			if got := seen.streams(); got[len(got)-1] != "one/second as grpc-1" {
				return fmt.Errorf("it saw %q", got)
			}
			return nil
		})
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	<-client.Exited()
	if log := client.Log(); !strings.Contains(log, "PASS") {
		t.Error(log)
	}
	wantHidden(t, r, tokensGiven)
}

// callUntilEOF calls until standard input ends. No call may fail.
func callUntilEOF(t *testing.T, conn *grpc.ClientConn) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for calls := 0; ; calls++ {
		if _, err := grpc_health_v1.NewHealthClient(conn).Check(xdstest.Context(t), new(grpc_health_v1.HealthCheckRequest), grpc.WaitForReady(calls == 0)); err != nil {
			t.Fatalf("call %d: %v", calls, err)
		}
		select {
		case <-tick.C:
		case <-ended:
			return
		}
	}
}

// wantHidden fails the test if the relay shows a token in its log or in an answer.
func wantHidden(t *testing.T, r *relay, given []string) {
	t.Helper()
	texts := map[string]string{"the log": r.Log()}
	paths := []string{"/server_info", "/keys", "/clients", "/nacks", "/origins", "/metrics"}
	for _, k := range r.keys() {
		paths = append(paths, "/config_dump?key="+url.QueryEscape(k.Key))
	}
	for _, path := range paths {
		b, err := r.Get(path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		texts[path] = string(b)
	}
	for where, text := range texts {
		for _, token := range given {
			for _, part := range strings.Split(token, ".") {
				if strings.Contains(text, part) {
					t.Errorf("%s has a part of a token", where)
				}
			}
		}
	}
}
