package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"xdsrelay/config"
	"xdsrelay/internal/admin/keystatus"
	"xdsrelay/internal/adminclient"
	"xdsrelay/internal/xds"
)

var bare = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

var nextPage = regexp.MustCompile(`"next_page_token": "([^"]+)"}\s*$`)

// Operators read the state of 20,000 clients over 100 keys, with three types each, on real streams,
// a hundred on a connection: all pages of /clients as relay status does, a key with its versions,
// and a version's progress.
func BenchmarkStatusOf20000Clients(b *testing.B) {
	const clients, keys, each = 20_000, 100, 100
	o := operate(b, "")
	types := []xds.TypeURL{xds.ClusterType, xds.EndpointType, xds.ListenerType}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var conn *grpc.ClientConn
	for i := range clients {
		if i%each == 0 {
			var err error
			if conn, err = grpc.NewClient(o.relay.ClientAddresses(), grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func(c *grpc.ClientConn) func() { return func() { _ = c.Close() } }(conn))
		}
		st, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
		if err != nil {
			b.Fatal(err)
		}
		node := &corev3.Node{Id: fmt.Sprintf("sidecar~10.0.0.1~web-%d.default~cluster.local", i), Cluster: fmt.Sprint("edge-", i%keys)}
		for _, typ := range types {
			r := &discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: string(typ)}
			if typ == xds.EndpointType {
				r.ResourceNamesSubscribe = []string{"a"}
			}
			if err := st.Send(r); err != nil {
				b.Fatal(err)
			}
			node = nil
		}
		m, err := st.Recv()
		if err != nil {
			b.Fatal(err)
		}
		if err := st.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.TypeUrl, ResponseNonce: m.Nonce}); err != nil {
			b.Fatal(err)
		}
	}
	c, err := adminclient.New(adminclient.Options{Address: o.admin}, new(config.Config))
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	read := func(b *testing.B, what func(b *testing.B) int) {
		size := 0
		slowest := time.Duration(0)
		for b.Loop() {
			began := time.Now()
			size = what(b)
			slowest = max(slowest, time.Since(began))
		}
		b.ReportMetric(float64(size)/1e6, "MB")
		b.ReportMetric(slowest.Seconds()*1e3, "slowest-ms")
	}
	b.Run("status", func(b *testing.B) {
		read(b, func(b *testing.B) int {
			var out bytes.Buffer
			cmd := newRootCmd()
			cmd.SetArgs([]string{"status", "--admin", o.admin})
			cmd.SetOut(&out)
			if err := cmd.Execute(); err != nil || !strings.Contains(out.String(), "20000 streams") {
				b.Fatalf("%v %.1000s", err, &out)
			}
			return out.Len()
		})
	})
	b.Run("clients", func(b *testing.B) {
		read(b, func(b *testing.B) (bytes int) {
			items, err := c.List(ctx, "/clients", nil)
			if err != nil || len(items) != clients {
				b.Fatal(len(items), err)
			}
			for _, i := range items {
				bytes += len(i)
			}
			return bytes
		})
	})
	// A reader that does not decode, such as curl.
	b.Run("clients/bytes", func(b *testing.B) {
		read(b, func(b *testing.B) (bytes int) {
			for page := "/clients?limit=10000"; page != ""; {
				resp, err := bare.Get("http://" + o.admin + page)
				if err != nil {
					b.Fatal(err)
				}
				text, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close() // read to its end
				if err != nil || resp.StatusCode != http.StatusOK {
					b.Fatal(resp.Status, err)
				}
				bytes += len(text)
				page = ""
				if m := nextPage.FindSubmatch(text[max(0, len(text)-4096):]); m != nil {
					page = "/clients?limit=10000&page_token=" + string(m[1])
				}
			}
			return bytes
		})
	})
	b.Run("keys", func(b *testing.B) {
		read(b, func(b *testing.B) int {
			items, err := c.List(ctx, "/keys", nil)
			if err != nil || len(items) != keys {
				b.Fatal(len(items), err)
			}
			return 0
		})
	})
	b.Run("key", func(b *testing.B) {
		read(b, func(b *testing.B) int {
			var raw json.RawMessage
			if err := c.Get(ctx, "/keys/edge-1", nil, &raw); err != nil {
				b.Fatal(err)
			}
			return len(raw)
		})
	})
	b.Run("progress", func(b *testing.B) {
		read(b, func(b *testing.B) int {
			var p keystatus.Progress
			if err := c.Get(ctx, "/progress/edge-1?type=CDS&version=v1", nil, &p); err != nil || p.Reached != clients/keys {
				b.Fatalf("%v %+v", err, p)
			}
			return 0
		})
	})
}
