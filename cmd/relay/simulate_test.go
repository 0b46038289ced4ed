package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"xdsrelay/internal/demo"
	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

func TestSimulate(t *testing.T) {
	o := operate(t, "")
	at := o.relay.ClientAddresses()
	for _, variant := range []string{"sotw", "delta"} {
		var out xdstest.Log
		s := &demo.Simulation{Relay: at, Cluster: "web", Clients: 4, Delta: variant == "delta", Out: &out}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		o.until([]string{"status", "-o", "json"}, `"node": "web-003"`, `"variant": "`+variant+`"`, `"SYNCED"`)
		out.Until(t, 0, "4 of 4 connected, 4 complete, ")
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if got := out.String(); !regexp.MustCompile(`\n *[0-9.]+s  4 of 4 connected, 4 complete, [1-9][0-9]* ACKs, 0 NACKs, 0 errors\nthe clients received [0-9]+ responses, acknowledged [0-9]+ and rejected 0\n$`).MatchString(got) {
			t.Errorf("%s: %s", variant, got)
		}
	}
}

// Simulated clients notice a dead path, as Envoys do that ping: after 30 s and 10 s.
func TestSimulateNoticesADeadPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bufconn.Listen(1 << 16)
		defer l.Close()
		srv := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, cs grpc.ServerStream) error {
			<-cs.Context().Done()
			return cs.Context().Err()
		}))
		go func() { _ = srv.Serve(l) }()
		defer srv.Stop()
		dial, err := new(clientTLS).options()
		if err != nil {
			t.Fatal(err)
		}
		var dead atomic.Bool
		dial = append(dial, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			if dead.Load() {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			c, err := l.DialContext(ctx)
			return deadPath{c, &dead}, err
		}))
		var out xdstest.Log
		s := &demo.Simulation{Relay: "passthrough:///relay", Cluster: "web", Clients: 1, Dial: dial, Out: &out}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		time.Sleep(5 * time.Second)
		dead.Store(true)
		time.Sleep(45 * time.Second)
		if got := out.String(); !strings.Contains(got, "1 of 1 connected") || !strings.Contains(got, "1 stream failed") {
			t.Error(got)
		}
		stop()
		<-ended
	})
}

// deadPath is a connection that loses everything once dead is true.
type deadPath struct {
	net.Conn
	dead *atomic.Bool
}

func (c deadPath) Write(b []byte) (int, error) {
	if c.dead.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// If the relay refuses clients, its error is printed, and the exit code is 1.
func TestSimulateIsRefused(t *testing.T) {
	ca := tlstest.NewAuthority(t)
	pair := ca.Pair(t, tlstest.DNS("localhost"), tlstest.URI("spiffe://d/edge"))
	dir := xdstest.Files(t, map[string]string{
		"relay.yaml": `log: {level: error}
downstream:
  address: 127.0.0.1:0
  drain: 0s
  tls: {cert_file: crt, key_file: key, client_ca_file: ca.crt}
upstream: {origins: [{address: 'file:origin'}]}
aggregation: {rules: [{match: 'node.cluster == "edge"', key: node.cluster}]}
admin: {address: '127.0.0.1:0'}
`,
		"ca.crt": string(ca.PEM()), "crt": string(pair.Cert), "key": string(pair.Key),
	})
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := os.Mkdir(in("origin"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, typ := range map[string]xds.TypeURL{"c.yaml": xds.ClusterType, "l.yaml": xds.ListenerType} {
		text := fmt.Sprintf("version_info: '1'\ntype_url: %s\nresources: [{'@type': %s, name: a}]\n", typ, typ)
		xdstest.WriteFile(t, in("origin/"+name), text)
	}
	r := load(t, in("relay.yaml"))
	xdstest.Run(t, func(ctx context.Context) error { return r.Run(ctx, context.Background()) })
	_, port, _ := strings.Cut(r.ClientAddresses(), ":")
	args := []string{"simulate", "--relay", "localhost:" + port, "--clients", "2"}
	secure := []string{"--tls-ca", in("ca.crt"), "--tls-cert", in("crt"), "--tls-key", in("key")}
	for _, c := range []struct {
		name string
		args []string
		code int
		out  string
		errs string
	}{
		{"admitted", append([]string{"--for", "3s"}, secure...), 0, "2 of 2 connected, 2 complete, ", ""},
		{"no key for the cluster", append([]string{"--cluster", "lost"}, secure...), 1, "code = PermissionDenied desc = no aggregation rule matches this node", "relay: simulate: 2 of 2 clients are not complete\n"},
		{"plaintext", nil, 1, "failed; the clients try again; the newest: edge-00", "relay: simulate: 2 of 2"},
		{"no certificate", secure[:2], 1, "failed; the clients try again; the newest: edge-00", "relay: simulate: 2 of 2"},
		{"no CA file", []string{"--tls-ca", in("none")}, 1, "", "relay: --tls-ca: open "},
		{"half a pair", []string{"--tls-cert", in("crt")}, 1, "", "relay: --tls-cert and --tls-key: "},
		{"no clients", []string{"--clients", "0"}, 1, "", "relay: --clients: must be at least 1, but is 0\n"},
		{"no target", []string{"--relay", ""}, 1, "", "relay: --relay: must not be empty\n"},
	} {
		code, out, errs := runRelay(append(append(args, "--for", (700*time.Millisecond).String()), c.args...)...)
		if code != c.code || !strings.Contains(out, c.out) || !strings.HasPrefix(errs, c.errs) {
			t.Errorf("%s: %d\n%s%s", c.name, code, out, errs)
		}
	}
}
