package integration

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/xdstest"
)

// waitGauge waits until a gauge has this value.
func (r *relay) waitGauge(want float64, name string, labels ...string) {
	r.t.Helper()
	xdstest.Eventually(r.t, name, func() error {
		if v := r.Metric(name, labels...); v != want {
			return fmt.Errorf("%v is %v, want %v", labels, v, want)
		}
		return nil
	})
}

// problem fails the test unless the list of the relay's problems has one with this text, or none.
func (r *relay) problem(want bool, text string) {
	r.t.Helper()
	all := r.info().Problems
	if has := slices.ContainsFunc(all, func(p problem) bool { return strings.Contains(p.Text, text) }); has != want {
		r.t.Errorf("the problem %q: %v, want %v; all: %q", text, has, want, all)
	}
}

// A rejected response of an origin is shown until the origin repairs it: by a gauge, in /origins and
// in the list of problems. It is shown also while the origin sends nothing more, and on its next stream.
func TestP18_RejectedUntilRepaired(t *testing.T) {
	t.Parallel()
	for _, up := range variants {
		t.Run(up.String(), func(t *testing.T) {
			t.Parallel()
			f := xdstest.StartScriptedOrigin(t)
			r := serve(t, f.Address, xdstest.Config{"upstream.variant": up.String(), "upstream.linger": "0s"})
			conn := xdstest.Dial(t, r.Address, nil)
			s := xdstest.OpenStreamOn(t, conn, methods[up])
			s.Ask(node("n", "edge"), resource.ClusterType)
			stays := xdstest.OpenStream(t, r.Address, methods[up])
			stays.Ask(node("n", "edge"), resource.ListenerType)
			of := []string{"origin", f.Address, "type", "CDS"}
			f.WaitType(resource.ClusterType)
			f.WaitType(resource.ListenerType)
			r.waitGauge(0, "upstream_rejected_types", of...)
			reject := func(nonce string) {
				t.Helper()
				f.Respond(resource.ClusterType, nonce, xdstest.Cluster("", 1))
				f.WaitAnswer(nonce)
				r.waitGauge(1, "upstream_rejected_types", of...)
			}
			reject("bad-1")
			r.problem(true, "the relay rejects CDS responses of origin "+f.Address+" for key edge: ")
			type origin struct {
				Rejected []struct {
					Type, Key, Error string
					Keys             int
				}
			}
			var list struct{ Items []origin }
			if err := r.GetJSON("/origins", &list); err != nil {
				t.Fatal(err)
			}
			if o := list.Items[0].Rejected; len(o) != 1 || o[0].Type != "CDS" || o[0].Key != "edge" || o[0].Keys != 1 || !strings.Contains(o[0].Error, "without a name") {
				t.Errorf("/origins: %+v", o)
			}
			f.Respond(resource.ListenerType, "listeners", xdstest.Listener("in", "in", 1)) // another type is accepted
			gets(t, stays, xdstest.Listener("in", "in", 1))
			r.waitGauge(1, "upstream_rejected_types", of...)

			f.Send(xdstest.Raw("\xff\xff\xff not protobuf")) // ends the stream
			xdstest.Eventually(t, "another stream", xdstest.Holds(func() bool { return f.Streams() == 2 }))
			r.waitGauge(1, "upstream_rejected_types", of...)
			f.Respond(resource.ClusterType, "good", xdstest.Cluster("web", 1))
			gets(t, s, xdstest.Cluster("web", 1))
			r.waitGauge(0, "upstream_rejected_types", of...)
			r.problem(false, "rejects CDS")

			reject("bad-2")
			if err := conn.Close(); err != nil { // no client wants the type any more
				t.Fatal(err)
			}
			r.waitGauge(0, "upstream_rejected_types", of...)
		})
	}
}

// A file of a directory that cannot be used is counted until it is repaired.
func TestP80_FaultyFilesUntilRepaired(t *testing.T) {
	t.Parallel()
	d := &directory{t: t, path: t.TempDir()}
	d.write("clusters.json", xdstest.Cluster("web", 1))
	r := serve(t, "file://"+d.path, nil)
	r.waitGauge(0, "upstream_faulty_files")
	d.raw("clusters.json", "{")
	r.waitGauge(1, "upstream_faulty_files")
	r.problem(true, "has files that cannot be used")
	d.write("clusters.json", xdstest.Cluster("web", 2))
	r.waitGauge(0, "upstream_faulty_files")
}

// Certificate files that cannot be used are shown until they are repaired, also by restoring the
// files in force.
func TestCertificateReloadFailedUntilRepaired(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := tlstest.NewAuthority(t).Pair(t, tlstest.Loopback()).Write(t, dir, "server")
	r := serve(t, origin(t, xdstest.Linear).Address, xdstest.Config{"downstream.tls": map[string]any{"cert_file": cert, "key_file": key}})
	of := []string{"of", "downstream.tls"}
	family := func() int {
		all, err := r.Metrics()
		if err != nil {
			t.Fatal(err)
		}
		return len(all["xdsrelay_certificate_reload_failed"].GetMetric())
	}
	if n := family(); n != 1 {
		t.Fatalf("%d series before the fault, want 1", n)
	}
	good, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	replace(t, key, []byte("no key"))
	r.waitGauge(1, "certificate_reload_failed", of...)
	r.problem(true, "its new content cannot be used")
	replace(t, key, good)
	r.waitGauge(0, "certificate_reload_failed", of...)
	if n := r.Metric("certificate_reloads_total", "result", "reloaded"); n != 0 {
		t.Errorf("%v reloads of the same files", n)
	}
}

// A rule whose match fails, and a type without a key, are shown while the client stays connected.
// They are gone with the rules, and with the client.
func TestRuleFaultsUntilRepaired(t *testing.T) {
	t.Parallel()
	o := origin(t, xdstest.Linear)
	o.Put("edge", xdstest.Web(1)...)
	rules := func(match string) xdstest.Config {
		return xdstest.Config{"aggregation.rules": []map[string]any{
			{"match": match, "types": []string{"CDS"}, "key": "\"never\""}, {"types": []string{"CDS"}, "key": "node.cluster"},
		}}
	}
	f := follow(t, o.Address, rules(`node.metadata.absent == "x"`))
	conn := xdstest.Dial(t, f.Address, nil)
	s := xdstest.OpenStreamOn(t, conn, methods[fleet.SotW])
	s.Ask(node("n", "edge"), resource.ClusterType)
	gets(t, s, xdstest.Cluster("web", 1))
	s.Ask(nil, resource.ListenerType)
	f.waitGauge(1, "rules_with_errors")
	f.problem(true, "the match of these rules fails for some nodes: aggregation.rules[0] (")
	f.waitGauge(1, "downstream_unanswered_types", "reason", "unmapped_later_type")
	f.waitGauge(0, "downstream_unanswered_types", "reason", "secrets")
	f.to(rules(`has(node.metadata.absent)`), reloaded)
	f.waitGauge(0, "rules_with_errors")
	f.problem(false, "fails for some nodes")
	f.waitGauge(1, "downstream_unanswered_types", "reason", "unmapped_later_type")
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	f.waitGauge(0, "downstream_unanswered_types", "reason", "unmapped_later_type")
}
