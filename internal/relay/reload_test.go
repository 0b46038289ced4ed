package relay

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"

	"xdsrelay/config"
	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/telemetry/logging"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// reloadFixture is a relay that does not run, with a configuration file that tests change.
type reloadFixture struct {
	*testing.T
	dir string
	r   *Relay
	log bytes.Buffer
}

// base is the start of every configuration here.
const base = "name: r\nupstream: {origins: [{address: 'file:.'}]}\nadmin: {address: '127.0.0.1:0', token_file: token}\ndownstream:\n  address: 127.0.0.1:0\n"

func newReloadFixture(t *testing.T, text string) *reloadFixture {
	t.Helper()
	return newReloadFixtureOf(t, base+text)
}

// newReloadFixtureOf makes one from the whole text.
func newReloadFixtureOf(t *testing.T, text string) *reloadFixture {
	t.Helper()
	g := &reloadFixture{T: t, dir: xdstest.Files(t, map[string]string{"relay.yaml": text, "token": "first", "rules.yaml": "- key: node.id\n"})}
	load := func() (*config.Config, error) { return config.Load(filepath.Join(g.dir, "relay.yaml"), nil) }
	cfg, err := load()
	if err != nil {
		t.Fatal(err)
	}
	log, level, err := logging.New(&g.log, cfg.Log)
	if err != nil {
		t.Fatal(err)
	}
	if g.r, err = New(cfg, log, level, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		var all []net.Listener
		for _, e := range g.r.listeners {
			all = append(all, e)
		}
		if g.r.adminListener != nil {
			all = append(all, g.r.adminListener)
		}
		if g.r.Member != nil {
			all = append(all, g.r.Member.listener)
		}
		for _, l := range all {
			if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) { // closed already if it ran
				t.Error(err)
			}
		}
	})
	g.r.reloads = newReloader(g.r, load, nil)
	return g
}

// to changes a file and reloads; it returns the new lines of the log.
func (g *reloadFixture) to(name, text string) string {
	g.Helper()
	if name == "relay.yaml" {
		text = base + text
	}
	xdstest.WriteFile(g, filepath.Join(g.dir, name), text)
	return g.reload(false)
}

func (g *reloadFixture) reload(asked bool) string {
	g.log.Reset()
	g.r.reloads.reload(asked, false)
	return strings.ReplaceAll(g.log.String(), g.dir, "DIR")
}

// says fails unless text has all wanted texts, or is empty if none are wanted.
func (g *reloadFixture) says(text string, want ...string) {
	g.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			g.Errorf("the log does not say %q:\n%s", w, text)
		}
	}
	if len(want) == 0 && text != "" {
		g.Errorf("the log says\n%s", text)
	}
}

// gauges checks the gauges for a rejected file and for keys that need a restart.
func (g *reloadFixture) gauges(rejected, restart int) {
	g.Helper()
	if m := g.r.metrics; m.ConfigRejected.Value() != rejected || m.ConfigNeedsRestart.Value() != restart {
		g.Errorf("rejected %d, needs restart %d; want %d, %d", m.ConfigRejected.Value(), m.ConfigNeedsRestart.Value(), rejected, restart)
	}
}

// admits reports whether a gate admits a node.
func admits(t *testing.T, policy *listener.Policy, id string) bool {
	t.Helper()
	raw, err := proto.Marshal(&corev3.Node{Id: id})
	if err != nil {
		t.Fatal(err)
	}
	n, err := new(xds.NodeTable).Intern(raw)
	if err != nil {
		t.Fatal(err)
	}
	return policy.Caller("127.0.0.1:1", nil).Admit(n) == nil
}

// authorized reports whether the admin address accepts a token.
func authorized(h http.Handler, token string) bool {
	req := httptest.NewRequest(http.MethodGet, "/server_info", nil)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w.Code == http.StatusOK
}

// Keys that can change do at once. The log names the others, except those with the value in force.
func TestReload(t *testing.T) {
	g := newReloadFixture(t, "  drain: 10s\n")
	g.says(g.reload(false))
	g.says(g.to("relay.yaml", "  drain: 10s # a comment\n"))
	g.says(g.to("relay.yaml", "  drain: 5s\n  limits: {keys: 7, request_bytes: 5}\nlog: {level: debug}\n"),
		`msg="configuration reloaded" changed="downstream.drain downstream.limits.keys log.level"`,
		`level=WARN msg="configuration change needs a restart" keys=downstream.limits.request_bytes`)
	g.gauges(0, 1)
	now := g.r.active.Load()
	if l := g.r.limits(now); l.Keys != 7 || l.RequestBytes != 16<<20 || now.cfg.Downstream.Drain.Seconds() != 5 || g.r.level.Level() != slog.LevelDebug {
		t.Errorf("in force are %+v, %v", l, g.r.level.Level())
	}
	// It is logged once, and shown while it lasts.
	g.says(g.to("relay.yaml", "  drain: 6s\n  limits: {keys: 7, request_bytes: 5}\nlog: {level: debug}\n"), "changed=downstream.drain")
	if strings.Contains(g.log.String(), "needs a restart") {
		t.Error("what needs a restart is said again")
	}
	if got := g.r.configuration(); !slices.Equal(got.NeedsRestart, []string{"downstream.limits.request_bytes"}) || got.Rejected != nil {
		t.Errorf("%+v", got)
	}
	g.says(g.reload(true), "configuration has not changed since it was last read", "needs_restart=downstream.limits.request_bytes")
	// What an earlier version of the file had says nothing about a faulty one.
	g.to("relay.yaml", "  drain: [\n")
	g.gauges(1, 0)
	if got := g.r.configuration(); len(got.NeedsRestart) > 0 || got.Rejected == nil {
		t.Errorf("%+v", got)
	}
	g.says(g.to("relay.yaml", ""), "changed=")
	g.gauges(0, 0)
	// On SIGHUP a change that needs a restart is still a change.
	xdstest.WriteFile(t, filepath.Join(g.dir, "relay.yaml"), base+"  limits: {request_bytes: 6}\n")
	if text := g.reload(true); !strings.Contains(text, "needs a restart") || strings.Contains(text, "has not changed") {
		t.Errorf("the log says\n%s", text)
	}
	g.to("relay.yaml", "")
	g.says(g.reload(true), `"configuration has not changed"`)
}

// A file that is faulty or unreadable changes nothing, and its faults are logged once with their
// places.
func TestReloadOfABrokenFile(t *testing.T) {
	for what, c := range map[string]struct{ file, text, want string }{
		"syntax":      {"relay.yaml", "  drain: [\n", "DIR/relay.yaml:6"},
		"unknown key": {"relay.yaml", "  drain: 1s\n  drian: 1s\n", "DIR/relay.yaml:7: downstream.drian: unknown key"},
		"value":       {"relay.yaml", "  drain: 1s\nlog: {level: loud}\n", "DIR/relay.yaml:7: log.level: must be"},
		"expression":  {"relay.yaml", "  drain: 1s\n  identity: nope\n", "DIR/relay.yaml:7: downstream.identity: undeclared"},
		"rule":        {"relay.yaml", "  drain: 1s\naggregation:\n  rules:\n    - key: nope\n", "DIR/relay.yaml:9: aggregation.rules[0].key[0]: undeclared"},
		"certificate": {"relay.yaml", "  drain: 1s\n  tls: {cert_file: token, key_file: token}\n", "downstream.tls.cert_file: no certificate in DIR/token"},
		"rules file":  {"rules.yaml", "- kye: node.id\n", "DIR/rules.yaml:1: rules[0].kye: unknown key"},
		"token":       {"token", "", "admin.token_file: DIR/token: must have one token"},
	} {
		t.Run(what, func(t *testing.T) {
			const good = "  drain: 10s\naggregation: {file: rules.yaml}\n"
			g := newReloadFixture(t, good)
			before := g.r.active.Load()
			g.says(g.to(c.file, c.text), "level=ERROR", "the previous one stays in force", c.want)
			g.gauges(1, 0)
			if g.r.active.Load() != before {
				t.Error("something was put in force")
			}
			if r := g.r.configuration().Rejected; r == nil || !strings.Contains(strings.ReplaceAll(strings.Join(r.Faults, "\n"), g.dir, "DIR"), c.want) {
				t.Errorf("%+v is shown", r)
			}
			g.says(g.reload(false))
			g.says(g.reload(true), c.want)
			g.to("rules.yaml", "- key: node.id\n")
			g.to("token", "first")
			g.says(g.to("relay.yaml", good), map[bool]string{true: "it is the one in force"}[c.file == "relay.yaml"])
			g.gauges(0, 0)
			if g.r.active.Load() != before || g.r.configuration().Rejected != nil {
				t.Error("the good one is another, or the broken one is still shown")
			}
		})
	}
	g := newReloadFixture(t, "")
	g.to("relay.yaml", "  drian: 1s\n")
	if text := g.to("relay.yaml", "  limits: {request_bytes: 6}\n"); !strings.Contains(text, "has no faults now; some values need") || strings.Contains(text, "it is the one in force") {
		t.Errorf("repaired, with a change that needs a restart: the log says\n%s", text)
	}
	if err := os.Remove(filepath.Join(g.dir, "relay.yaml")); err != nil {
		t.Fatal(err)
	}
	g.says(g.reload(false), "no such file")
}

// A faulty certificate is followed until it is repaired; the rules file and the token always are.
func TestReloadFollows(t *testing.T) {
	g := newReloadFixture(t, "")
	follows := func(want ...string) {
		t.Helper()
		var got []string
		for _, f := range *g.r.reloads.follow.Load() {
			got = append(got, filepath.Base(f))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v are followed, want %v", got, want)
		}
	}
	follows("relay.yaml", "token")
	g.to("relay.yaml", "  tls: {cert_file: none.crt, key_file: none.key}\naggregation: {file: rules.yaml}\n")
	follows("relay.yaml", "token", "rules.yaml", "none.crt", "none.key")
	g.to("relay.yaml", "aggregation: {file: rules.yaml}\n")
	follows("relay.yaml", "rules.yaml", "token")
}

// The environment overrides the file, as at the start.
func TestReloadAndTheEnvironment(t *testing.T) {
	t.Setenv("RELAY_LOG_LEVEL", "warn")
	g := newReloadFixture(t, "log: {level: info}\n")
	g.to("relay.yaml", "log: {level: debug}\n")
	if l := g.r.level.Level(); l != slog.LevelWarn || g.r.metrics.ConfigNeedsRestart.Value() != 0 {
		t.Errorf("%v", l)
	}
}

// The level of POST /logging stays until the file's level changes.
func TestReloadAndTheLogLevel(t *testing.T) {
	g := newReloadFixture(t, "log: {level: warn}\n")
	g.r.level.Set(slog.LevelDebug)
	g.to("relay.yaml", "  drain: 1s\nlog: {level: warn}\n")
	if l := g.r.level.Level(); l != slog.LevelDebug {
		t.Errorf("%v after a change of something else", l)
	}
	g.to("relay.yaml", "log: {level: error}\n")
	if l := g.r.level.Level(); l != slog.LevelError {
		t.Errorf("%v after a change of the level", l)
	}
}

// A change of the rules file changes the rules; unchanged rules keep their statistics.
func TestReloadOfRules(t *testing.T) {
	g := newReloadFixture(t, "aggregation: {file: rules.yaml}\n")
	rules := g.r.active.Load().Rules
	g.to("relay.yaml", "  drain: 1s\naggregation: {file: rules.yaml}\n")
	if g.r.active.Load().Rules != rules {
		t.Error("the rules are others")
	}
	g.says(g.to("rules.yaml", "- key: node.cluster\n"), "changed=aggregation.file")
	if g.r.active.Load().Rules == rules {
		t.Error("the rules are the same")
	}
}

// Members share keys by what is in force: rules change at once, origins with a restart.
func TestReloadAndTheCompat(t *testing.T) {
	text := func(origin, key string) string {
		return "name: r\nupstream: {node: node, origins: [{name: " + origin + ", address: 'file:.'}]}\nadmin: {address: ''}\ndownstream: {address: '127.0.0.1:0'}\n" +
			"cluster: {name: c, address: '127.0.0.1:0', gossip: '127.0.0.1:7946'}\naggregation: {rules: [{key: " + key + "}]}\n"
	}
	g := newReloadFixtureOf(t, text("one", "node.id"))
	compat := *g.r.Member.compat.Load()
	for _, c := range []struct {
		origin, key string
		same        bool
	}{{"two", "node.id", true}, {"one", "node.cluster", false}, {"one", "node.id", true}} {
		xdstest.WriteFile(t, filepath.Join(g.dir, "relay.yaml"), text(c.origin, c.key))
		g.reload(false)
		if same := *g.r.Member.compat.Load() == compat; same != c.same {
			t.Errorf("%+v: the compat is the same: %v", c, same)
		}
	}
}

// Admission rules change only at a listener that keeps its address and TLS.
func TestReloadOfListeners(t *testing.T) {
	g := newReloadFixture(t, "  identity: node.id == \"a\"\n")
	policy := g.r.listeners[0].policy
	g.says(g.to("relay.yaml", "  identity: node.id == \"b\"\n"), "changed=downstream.identity")
	in := func(id string) bool { return admits(t, policy, id) }
	if in("a") || !in("b") {
		t.Error("the identity rule is the old one")
	}
	moved := strings.Replace(base, "address: 127.0.0.1:0\n", "address: 127.0.0.2:0\n", 1)
	xdstest.WriteFile(t, filepath.Join(g.dir, "relay.yaml"), moved)
	g.says(g.reload(false), `needs a restart" keys="downstream.address downstream.identity"`)
	if in("a") || !in("b") {
		t.Error("the rule of another address is in force")
	}
	g.gauges(0, 2)
}

// The current content of the token's file applies; another file needs a restart.
func TestReloadOfTheToken(t *testing.T) {
	g := newReloadFixture(t, "")
	asked := func(token string) bool { return authorized(g.r.Admin.Handler(), token) }
	if !asked("first") {
		t.Fatal("the token is not the file's")
	}
	g.to("token", "second")
	if asked("first") || !asked("second") {
		t.Error("the token is the old one")
	}
	open := strings.Replace(base, ", token_file: token", "", 1)
	xdstest.WriteFile(t, filepath.Join(g.dir, "relay.yaml"), open)
	g.says(g.reload(false), "keys=admin.token_file")
	if asked("") || !asked("second") {
		t.Error("no token is asked for")
	}
}

// The admin API shows how far a reload is: first how many clients are compared with the new rules, then
// how many are checked and have to end. The relay of this test does not run, so it finishes nothing.
func TestReloadShowsItsProgress(t *testing.T) {
	g := newReloadFixture(t, "aggregation: {rules: [{key: node.id}]}\n")
	if got := g.r.configuration().Reloading; got != nil {
		t.Errorf("%+v without a reload", got)
	}
	g.r.reloads.compared.Store(3)
	if got := g.r.configuration().Reloading; got == nil || got.Checked != 3 || got.Clients != 0 {
		t.Errorf("%+v while the clients are compared", got)
	}
	g.to("relay.yaml", "aggregation: {rules: [{key: node.cluster}]}\n") // compares them again
	if got := g.r.configuration().Reloading; got == nil || got.Checked != 0 {
		t.Errorf("%+v after new rules", got)
	}
	xdstest.Run(t, g.r.fanout.Run)
	xdstest.Eventually(t, "the end of the reload", xdstest.Holds(func() bool { return g.r.configuration().Reloading == nil }))
}

// A configuration that could not be read is read again at the next poll, although no file changes.
func TestReloadIsRepeatedAfterAFault(t *testing.T) {
	t.Parallel() // it waits for a poll
	g := newReloadFixture(t, "")
	tries := make(chan int, 10)
	n := 0
	load := g.r.reloads.load
	g.r.reloads = newReloader(g.r, func() (*config.Config, error) {
		n++
		tries <- n
		if n == 1 {
			return nil, errors.New("too many open files")
		}
		return load()
	}, nil)
	xdstest.Run(t, g.r.reloads.run)
	<-tries
	<-tries
	xdstest.Eventually(t, "the reload", xdstest.Holds(func() bool { return g.r.reloads.status.Load().Rejected == nil }))
}

// A fault of a reload is redacted wherever it is shown.
func TestReloadFaultsAreRedacted(t *testing.T) {
	const secret = "hunter2hunter2"
	g := newReloadFixture(t, "")
	if said := g.to("relay.yaml", "log: {level: 'Bearer "+secret+"'}\n"); strings.Contains(said, secret) {
		t.Errorf("%s", said)
	}
	out := g.r.reloads.reload(true, false)
	shown := append(g.r.configuration().Rejected.Faults, out.Faults...)
	if all := strings.Join(shown, "\n"); len(shown) < 2 || strings.Contains(all, secret) || !strings.Contains(all, "log.level") {
		t.Errorf("%q", shown)
	}
}
