package integration

import (
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xdstest"
)

// crowd is a relay whose file the test changes, with n clients of the key edge.
type crowd struct {
	*followed
	ended   *endings
	clients []*fleet.Client
}

func newCrowd(t *testing.T, n int) *crowd {
	t.Helper()
	o := origin(t, xdstest.Linear)
	o.Put("edge", xdstest.Web(1)...)
	g := &crowd{followed: follow(t, o.Address, nil), ended: &endings{of: map[string]codes.Code{}}}
	for i := range n {
		g.clients = append(g.clients, client(t, g.Address, fleet.ClientConfig{Node: node(fmt.Sprint("n-", i), "edge"), Variant: variants[i%2],
			Behaviour: fleet.Raw, Subscribe: []fleet.Subscription{{Type: resource.ClusterType}}, OnStream: g.ended.note}))
	}
	waitAll(t, g.clients, "what the origin has", has(xdstest.Cluster("web", 1)))
	return g
}

// reloads runs relay reload, and fails unless it exits with code and prints want.
func (g *crowd) reloads(code int, want string, args ...string) {
	g.t.Helper()
	out, err := xdstest.Command(g.t, append([]string{"reload", "--admin", g.Admin}, args...)...).CombinedOutput()
	if got := exitCode(err); got != code || !strings.Contains(string(out), want) {
		g.t.Errorf("relay reload %v: exit %d, want %d with %q:\n%s", args, got, code, want, out)
	}
}

func exitCode(err error) int {
	if exit, ok := err.(interface{ ExitCode() int }); ok {
		return exit.ExitCode()
	}
	return 0
}

// rekeyed are rules that give a share of the clients another key.
func rekeyed(match string) xdstest.Config {
	return xdstest.Config{"aggregation.rules": []map[string]any{
		{"match": match, "key": []string{"node.cluster", `"moved"`}}, {"key": "node.cluster"},
	}}
}

// A reload that changes the key of more than half of 20 clients is rejected like a faulty file.
// relay reload --force applies it once.
func TestP5_MaxRekeyed(t *testing.T) {
	t.Parallel()
	g := newCrowd(t, 20)
	eleven := rekeyed(`node.id in ["n-0","n-1","n-2","n-3","n-4","n-5","n-6","n-7","n-8","n-9","n-10"]`)
	const fault = "aggregation: the new rules change the key of 11 of 20 clients, more than aggregation.max_rekeyed (50%); run 'relay reload --force' to apply them"
	g.to(eleven, "level=ERROR msg=\"configuration not reloaded; the previous one stays in force\" fault=")
	if r := g.info().Configuration.Rejected; r == nil || len(r.Faults) != 1 || !strings.HasPrefix(r.Faults[0], g.path+":") || !strings.Contains(r.Faults[0], fault) {
		t.Errorf("/server_info has %+v", r)
	}
	if out, err := xdstest.Command(t, "status", "--admin", g.Admin).CombinedOutput(); err != nil ||
		!strings.Contains(string(out), "! the configuration file is not in force: ") || !strings.Contains(string(out), fault) {
		t.Errorf("relay status does not show it: %v\n%s", err, out)
	}
	if g.Metric("config_rejected") != 1 {
		t.Error("the gauge is not set")
	}
	g.reloads(1, fault)
	g.reloads(1, `"result": "rejected"`, "-o", "json")
	if got := g.ended.all(); len(got) > 0 {
		t.Errorf("a rejected reload has ended %v", got)
	}
	if out := command(t, "explain", "--diff", g.path, "--admin", g.Admin); !strings.Contains(out, "\n11 of 20 clients would reconnect, ") || !strings.Contains(out, "more than aggregation.max_rekeyed allows") {
		t.Errorf("explain --diff does not have the numbers or the limit:\n%s", out)
	}
	// Other values of a rejected file do not apply either; with the old rules they do.
	loud := maps.Clone(eleven)
	loud["log.level"] = "debug"
	n := strings.Count(g.Log(), "configuration not reloaded")
	replace(t, g.path, g.with(loud))
	g.reloads(1, fault)
	g.to(xdstest.Config{"log.level": "debug"}, "changed=log.level")
	if g.info().Level != "debug" || g.Metric("config_rejected") != 0 || strings.Count(g.Log(), "configuration not reloaded") <= n {
		t.Errorf("%+v", g.info())
	}

	g.to(eleven, fault)
	g.reloads(0, "reloaded: aggregation.rules log.level", "--force")
	xdstest.Eventually(t, "the ends", xdstest.Holds(func() bool { got := g.ended.all(); return len(got) == 11 }))
	if g.info().Configuration.Rejected != nil || g.Metric("config_rejected") != 0 {
		t.Error("the file still counts as rejected")
	}
	g.reloads(0, "the configuration has not changed")
	xdstest.Eventually(t, "the new streams", xdstest.Holds(func() bool {
		return slices.ContainsFunc(g.keys(), func(k keyStatus) bool { return k.Key == "edge/moved" && k.Members == 11 })
	}))
	// --force holds for one reload. The way back is as large a change.
	g.to(rekeyed("false"), "change the key of")
	g.reloads(1, fault)
	// A larger limit in the file applies to the same reload.
	all := rekeyed("false")
	all["aggregation.max_rekeyed"] = "100%"
	g.to(all, "changed=\"aggregation.rules[0].match aggregation.max_rekeyed\"")
}

// relay reload prints how many clients have to end, and relay status how many are left.
func TestReloadShowsWhatMoves(t *testing.T) {
	t.Parallel()
	g := newCrowd(t, 4)
	slowly := rekeyed("true")
	slowly["downstream.drain"] = "1h"
	replace(t, g.path, g.with(slowly))
	const want = " of 4 clients have to end, within 1h0m0s (downstream.drain)"
	g.reloads(0, want+"; \"relay status\" shows the progress\n")
	g.prints("status", want+"\n")
}

// Rules that were rejected need --force also when fewer than 20 clients are left.
func TestP5_RejectedRulesStayRejected(t *testing.T) {
	t.Parallel()
	g := newCrowd(t, 19)
	last, err := fleet.NewClient(fleet.ClientConfig{Target: g.Address, Node: node("last", "edge"), Behaviour: fleet.Raw,
		Subscribe: []fleet.Subscription{{Type: resource.ClusterType}}})
	if err != nil {
		t.Fatal(err)
	}
	leave := xdstest.Run(t, last.Run)
	waitFor(t, last, "what the origin has", has(xdstest.Cluster("web", 1)))
	const fault = "change the key of 20 of 20 clients"
	g.to(rekeyed("true"), fault)
	leave()
	xdstest.Eventually(t, "the client to leave", xdstest.Holds(func() bool { return len(g.relay.clients()) == 19 }))
	g.reloads(1, fault)
	g.reloads(0, "reloaded: aggregation.rules", "--force")
}

// With ten of 20 clients, or with 19 clients, the limit does not apply.
func TestP5_FewRekeyed(t *testing.T) {
	t.Parallel()
	g := newCrowd(t, 20)
	g.to(rekeyed(`int(node.id.substring(2)) < 10`), "moving=10 refused=0 clients=20")
	few := newCrowd(t, 19)
	few.to(rekeyed("true"), "moving=19 refused=0 clients=19")
}

// Rules that give most clients no key count as well. An identity rule that refuses most clients
// applies without --force, and so does a change of secrets: an identity can be revoked at once.
func TestP5_MaxRekeyedIsOfRules(t *testing.T) {
	t.Parallel()
	g := newCrowd(t, 20)
	g.to(xdstest.Config{"aggregation.rules": []map[string]any{{"match": `node.id == "n-0"`, "key": "node.cluster"}}},
		"aggregation: the new rules change the key of 19 of 20 clients")
	g.to(xdstest.Config{"downstream.identity": `node.id == "n-0"`, "downstream.secrets": "deny"}, "moving=0 refused=19 clients=20")
	xdstest.Eventually(t, "the ends", xdstest.Holds(func() bool { got := g.ended.all(); return len(got) == 19 }))
	g.waitGauge(0, "config_rejected") // set after the streams' ends have begun
}

// Errors of rules count only once the rules are in force: those of a rejected reload never do.
func TestErrorsOfRejectedRules(t *testing.T) {
	t.Parallel()
	g := newCrowd(t, 20)
	rules := func(key ...string) xdstest.Config {
		return xdstest.Config{"aggregation.rules": []map[string]any{{"match": `node.metadata.absent == "x"`, "key": "node.id"}, {"key": key}}}
	}
	g.to(rules("node.cluster", `"moved"`), "change the key of 20 of 20 clients")
	if n := g.Metric("rule_errors_total"); n != 0 {
		t.Errorf("a rejected reload counts %v errors", n)
	}
	g.waitGauge(0, "rules_with_errors")
	g.to(rules("node.cluster"), reloaded)
	g.WaitMetric(20, "rule_errors_total")
	g.waitGauge(1, "rules_with_errors")
}

// command runs a command of the binary, and returns its output.
func command(t testing.TB, args ...string) string {
	t.Helper()
	out, err := xdstest.Command(t, args...).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		t.Fatalf("%v: %v: %s", args, err, exit.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// endings are the statuses of ended streams, by the client's id.
type endings struct {
	mu sync.Mutex
	of map[string]codes.Code
}

func (e *endings) note(c *fleet.Client, err error) {
	if err == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, again := e.of[c.ID()]; !again { // a refused client retries again and again
		e.of[c.ID()] = status.Code(errors.Unwrap(err))
	}
}

func (e *endings) all() map[string]codes.Code {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.of)
}
