package relay

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"

	"xdsrelay/internal/xdstest"
)

// oneListener and twoListeners differ in the number of listeners and in the first one's identity
// rule.
const (
	head         = "name: r\nupstream: {origins: [{address: 'file:.'}]}\nadmin: {address: '127.0.0.1:0', token_file: token}\ndownstream:\n  drain: 0s\n  listeners:\n"
	oneListener  = head + "  - {address: '127.0.0.1:0', identity: 'node.id != \"b\"', secrets: allow}\n"
	twoListeners = head + "  - {address: '127.0.0.1:0', identity: 'node.id != \"a\"', secrets: deny}\n  - {address: '127.0.0.2:0'}\n"
)

// replaceBy replaces the whole file and reloads.
func (g *reloadFixture) replaceBy(text string) string {
	g.Helper()
	xdstest.WriteFile(g, filepath.Join(g.dir, "relay.yaml"), text)
	return g.reload(false)
}

// The log and the admin API name what is in force: a listener's own key if the list changed,
// compared with the rules in force, not with the file's last content.
func TestReloadOfTheNumberOfListeners(t *testing.T) {
	g := newReloadFixtureOf(t, oneListener)
	policy := g.r.listeners[0].policy
	in := func() string { return fmt.Sprintf("a %v b %v", admits(t, policy, "a"), admits(t, policy, "b")) }
	g.says(g.replaceBy(twoListeners),
		`changed="downstream.listeners[0].identity downstream.listeners[0].secrets"`, "needs a restart\" keys=downstream.listeners\n")
	if got := in(); got != "a false b true" {
		t.Errorf("in force is %s", got)
	}
	g.gauges(0, 1)
	moved := strings.Replace(oneListener, "- {address: '127.0.0.1", "- {address: '127.0.0.3", 1)
	if text := g.replaceBy(moved); strings.Contains(text, "changed=") || in() != "a false b true" {
		t.Errorf("the rules of another address are in force: %s\n%s", in(), text)
	}
	// The file's rules are those of its former content, not those in force.
	g.says(g.replaceBy(oneListener), `changed="downstream.listeners[0].identity downstream.listeners[0].secrets"`)
	if got := in(); got != "a true b false" {
		t.Errorf("back, in force is %s", got)
	}
	g.gauges(0, 0)
}

// Only what is not in force needs a restart, also after a reload changed the rules of the start.
func TestReloadOfTheAddressAfterItsIdentity(t *testing.T) {
	g := newReloadFixture(t, "")
	const key = "downstream.identity"
	file := func(address, identity string) string {
		return strings.Replace(base, "address: 127.0.0.1:0\n", fmt.Sprintf("address: %s:0\n  identity: node.id == %q\n", address, identity), 1)
	}
	needs := func(keys ...string) {
		t.Helper()
		if got := g.r.configuration().NeedsRestart; !slices.Equal(got, keys) {
			t.Errorf("%v need a restart, want %v", got, keys)
		}
		g.gauges(0, len(keys))
	}
	g.says(g.replaceBy(file("127.0.0.1", "a")), "changed="+key)
	needs()
	g.says(g.replaceBy(file("127.0.0.2", "a")), "needs a restart\" keys=downstream.address\n")
	needs("downstream.address")
	g.says(g.reload(true), "needs_restart=downstream.address\n")
	g.says(g.replaceBy(file("127.0.0.2", "b")), "needs a restart\" keys="+key+"\n")
	needs("downstream.address", key)
	// The value of the start is not in force any more.
	g.says(g.replaceBy(strings.Replace(base, "127.0.0.1:0\n", "127.0.0.2:0\n", 1)), "needs a restart\" keys="+key+"\n")
	needs("downstream.address", key)
	g.says(g.replaceBy(file("127.0.0.1", "a")))
	needs()
}

// A listener's rules in force are not compared with another listener's that has its position in the
// file.
func TestReloadOfListenersInAnotherOrder(t *testing.T) {
	const a, b = "  - {address: '127.0.0.1:0', identity: 'node.id != \"a\"'}\n", "  - {address: '127.0.0.2:0'}\n"
	g := newReloadFixtureOf(t, head+a+b)
	other := strings.Replace(b, "}", ", identity: 'node.id != \"b\"'}", 1)
	g.says(g.replaceBy(head+other+strings.Replace(b, "0.2", "0.3", 1)), "changed=", "downstream.listeners[0].address downstream.listeners[1].address\"\n")
	g.gauges(0, 2)
	g = newReloadFixtureOf(t, head+a+b)
	g.says(g.replaceBy(head+a+other), "changed=downstream.listeners[1].identity\n")
	g.says(g.replaceBy(head+a+strings.Replace(other, "0.2", "0.3", 1)), "needs a restart\" keys=downstream.listeners[1].address\n")
	g.gauges(0, 1)
}

// A reload that adds a listener ends the clients that the remaining listener's new rules refuse,
// and no others.
func TestP5_ReloadOfTheNumberOfListenersEnds(t *testing.T) {
	origin := t.TempDir()
	xdstest.WriteFile(t, filepath.Join(origin, "cds.yaml"), "resources:\n- {'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster, name: c}\n")
	of := func(text string) string { return strings.Replace(text, "file:.", "file:"+origin, 1) }
	g := newReloadFixtureOf(t, of(oneListener))
	hangups := make(chan os.Signal, 1)
	g.r.reloads.hangups = hangups
	address := g.r.listeners[0].Addr().String()
	stop := xdstest.Run(t, func(ctx context.Context) error { return g.r.Run(ctx, context.Background()) })
	<-g.r.registry.Running()
	conn := xdstest.Dial(t, address, nil)
	t.Cleanup(func() {
		stop()
		if text := g.log.String(); !strings.Contains(text, `msg="rules, identity or secrets changed: the relay ends the affected streams" moving=0 refused=1 clients=2`) {
			t.Error(text)
		}
	})
	streams := map[string]*xdstest.Stream{}
	for _, id := range []string{"a", "c"} {
		s := xdstest.OpenStreamOn(t, conn, xdstest.SotWMethod)
		s.Ask(&corev3.Node{Id: id, Cluster: "k"}, "type.googleapis.com/envoy.config.cluster.v3.Cluster")
		s.Next()
		streams[id] = s
	}
	xdstest.WriteFile(t, filepath.Join(g.dir, "relay.yaml"), of(twoListeners))
	hangups <- syscall.SIGHUP
	streams["a"].WantEnd(codes.PermissionDenied)
	// The log has it before the client is gone.
	all := g.r.fanout.Clients()
	for late := time.Now().Add(10 * time.Second); len(all) != 1 && time.Now().Before(late); all = g.r.fanout.Clients() {
		<-time.After(time.Millisecond)
	}
	if len(all) != 1 || all[0].Node != "c" {
		t.Errorf("there are %+v", all)
	}
}

// A new token applies although the configuration file has faults; an unusable one does not.
func TestReloadOfTheTokenOfABrokenFile(t *testing.T) {
	for what, text := range map[string]string{"syntax": "  drain: [\n", "rule": "aggregation: {rules: [{key: nope}]}\n"} {
		t.Run(what, func(t *testing.T) {
			g := newReloadFixture(t, "")
			asked := func(token string) bool { return authorized(g.r.Admin.Handler(), token) }
			g.says(g.to("relay.yaml", text), "the previous one stays in force")
			g.says(g.to("token", "second"), `msg="admin token reloaded" file=DIR/token`)
			if asked("first") || !asked("second") {
				t.Error("the token that was taken back opens still")
			}
			g.gauges(1, 0)
			text := g.to("token", "")
			g.says(text, `level=WARN msg="admin token not reloaded; the previous token stays valid" file=DIR/token error="DIR/token: must have one token of printable ASCII characters without spaces"`)
			if asked("") || !asked("second") {
				t.Error("a file without a token has changed it")
			}
			if text := g.reload(true); strings.Contains(text, "the one before is still asked for") {
				t.Errorf("it is said again:\n%s", text)
			}
			if of := g.r.configuration().RejectedFiles; len(of) != 1 || of[0].Of != "admin.token_file" || !strings.Contains(of[0].Error, "must have one token") {
				t.Errorf("%+v is not taken", of)
			}
			g.says(g.to("token", "second"), `msg="admin token file is usable again; the token has not changed" file=DIR/token`)
			if of := g.r.configuration().RejectedFiles; of != nil {
				t.Errorf("%+v is not taken", of)
			}
			if text := g.to("relay.yaml", ""); strings.Contains(text, "token reloaded") {
				t.Errorf("it is said again:\n%s", text)
			}
		})
	}
}
