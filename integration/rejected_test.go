package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"

	"xdsrelay/internal/xdstest"
)

// nackRow is an item of /nacks?diff=true.
type nackRow struct {
	Type         string `json:"type"`
	Message      string `json:"message"`
	StillNacking int    `json:"still_nacking"`
	NotHeld      bool   `json:"not_held_any_more"`
	Resources    []struct {
		Name string `json:"name"`
		Diff string `json:"diff"`
	} `json:"resources"`
}

// A client rejects a version, and then accepts a newer one. The rejected resources stay readable,
// compared with what the client had, with its message and without secrets.
func TestP17_RejectedResourcesStay(t *testing.T) {
	t.Parallel()
	for _, v := range variants {
		t.Run(fmt.Sprint(v), func(t *testing.T) {
			o := origin(t, xdstest.Linear)
			r := serve(t, o.Address, xdstest.Config{"downstream.secrets": "allow"})
			stat := func(c *clusterv3.Cluster, name string) *clusterv3.Cluster {
				c.AltStatName = name
				return c
			}
			o.Put("edge", stat(keyed("a"), "before"), xdstest.Cluster("b", 1), xdstest.Endpoints("a", 1), secret("s"))
			open := func(id, url string, names ...string) *xdstest.Stream {
				s := xdstest.OpenStream(t, r.Address, methods[v])
				s.Ask(node(id, "edge"), url, names...)
				return s
			}
			clusters, endpoints, secrets := open("c", resource.ClusterType), open("e", resource.EndpointType, "a"), open("s", resource.SecretType, "s")
			clusters.Ack()
			endpoints.Ack("a")
			secrets.Nack(resource.SecretType, secrets.Next().Nonce, "no secrets", "s")
			o.Put("edge", stat(keyed("a"), "after"), xdstest.Cluster("new", 1), xdstest.Endpoints("a", 4711))
			clusters.Nack(resource.ClusterType, clusters.Next().Nonce, "a is not good")
			endpoints.Nack(resource.EndpointType, endpoints.Next().Nonce, "no such port", "a")
			for _, short := range []string{"CDS", "EDS", "SDS"} {
				r.WaitMetric(1, "downstream_nacks_total", "type", short)
			}
			o.Put("edge", stat(keyed("a"), "much later"), xdstest.Endpoints("a", 4712))
			clusters.Ack()
			endpoints.Ack("a")
			rows := map[string]nackRow{}
			xdstest.Eventually(t, "the ACKs", xdstest.Holds(func() bool {
				now := 0
				var got struct{ Items []nackRow }
				if err := r.GetJSON("/nacks?key=edge&diff=true", &got); err != nil {
					t.Fatal(err)
				}
				for _, row := range got.Items {
					rows[row.Message] = row
					now += row.StillNacking
				}
				return len(rows) == 3 && now == 1 // the Secret
			}))
			want := func(message string, names []string, texts ...string) {
				t.Helper()
				var got []string
				diff := ""
				for _, d := range rows[message].Resources {
					got = append(got, d.Name)
					diff += d.Diff
				}
				for _, text := range texts {
					if !strings.Contains(diff, text) {
						t.Errorf("%s: no %q in\n%s", message, text, diff)
					}
				}
				if fmt.Sprint(got) != fmt.Sprint(names) || strings.Contains(diff, "later") || strings.Contains(diff, hidden) {
					t.Errorf("%s: %v, want %v:\n%s", message, got, names, diff)
				}
			}
			want("a is not good", []string{"a", "new"}, "-alt_stat_name: before\n+alt_stat_name: after\n", "+name: new\n")
			want("no such port", []string{"a"}, "4711")
			if row := rows["(not shown: it may contain the Secret)"]; !row.NotHeld || len(row.Resources) > 0 {
				t.Errorf("a Secret is kept: %+v", row)
			}
			for _, row := range list[map[string]json.RawMessage](r, "/nacks") {
				if row["resources"] != nil {
					t.Error("/nacks has resources without diff=true")
				}
			}
			text := command(t, "nacks", "--key", "edge", "--diff", "--admin", r.Admin)
			for _, part := range []string{"CDS under edge: version ", "1 NACK by 1 client, the last ", "; no client rejects it now\na is not good\n--- a at the client\n+++ a in version",
				"-alt_stat_name: before\n+alt_stat_name: after\n", "the relay has not kept the resources of this version\n"} {
				if !strings.Contains(text, part) {
					t.Errorf("relay nacks --diff does not print %q:\n%s", part, text)
				}
			}
			if strings.Contains(text, hidden) || strings.Contains(text, "later") {
				t.Errorf("relay nacks --diff prints\n%s", text)
			}
		})
	}
}
