package integration

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xdstest"
)

// followed is a relay whose configuration file the test changes.
type followed struct {
	*relay
	path string
	base xdstest.Config
}

func follow(t testing.TB, origin string, more xdstest.Config) *followed {
	t.Helper()
	s := xdstest.QuickConfig()
	s["upstream.origins"] = xdstest.Origins(origin)
	maps.Copy(s, more)
	path := s.WriteFile(t)
	return &followed{start(t, "", nil, "serve", "--config", path), path, s}
}

// with is the file's text with other settings.
func (f *followed) with(more xdstest.Config) []byte {
	f.t.Helper()
	s := maps.Clone(f.base)
	maps.Copy(s, more)
	return s.Text()
}

// replace replaces a file atomically.
func replace(t testing.TB, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// to changes the file, and waits until the relay has logged this.
func (f *followed) to(more xdstest.Config, says string) {
	f.t.Helper()
	n := strings.Count(f.Log(), says)
	replace(f.t, f.path, f.with(more))
	f.WaitLog(f.t, n+1, says)
}

const reloaded = `msg="configuration reloaded"`

// The relay follows its file whichever way it is changed. SIGHUP rereads it and ends no stream. The
// log shows the configuration in force.
func TestReloadInEveryWay(t *testing.T) {
	t.Parallel()
	o := origin(t, xdstest.Linear)
	o.Put("edge", xdstest.Web(1)...)
	s := xdstest.QuickConfig()
	s["upstream.origins"] = xdstest.Origins(o.Address)
	mount := t.TempDir() // as Kubernetes mounts a ConfigMap
	in := func(name string) string { return filepath.Join(mount, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	drain := func(d string) []byte {
		s["downstream.drain"] = d
		return s.Text()
	}
	must(os.Mkdir(in("..v1"), 0o700))
	must(os.WriteFile(in("..v1/relay.yaml"), drain("100ms"), 0o600))
	must(os.Symlink("..v1", in("..data")))
	must(os.Symlink("..data/relay.yaml", in("relay.yaml")))
	r := start(t, "", nil, "serve", "--config", in("relay.yaml"))
	c := client(t, r.Address, fleet.ClientConfig{Node: node("n", "edge"), Behaviour: fleet.Raw, Subscribe: []fleet.Subscription{{Type: resource.ClusterType}}})
	waitFor(t, c, "what the origin has", has(xdstest.Cluster("web", 1)))

	r.Signal(syscall.SIGHUP)
	r.WaitLog(t, 1, `msg="configuration has not changed"`)
	for i, change := range []func(){
		func() { // a swap of the symlink
			must(os.Mkdir(in("..v2"), 0o700))
			must(os.WriteFile(in("..v2/relay.yaml"), drain("110ms"), 0o600))
			must(os.Symlink("..v2", in("..tmp")))
			must(os.Rename(in("..tmp"), in("..data")))
		},
		func() { must(os.WriteFile(in("..v2/relay.yaml"), drain("120ms"), 0o600)) }, // in place
		func() { replace(t, in("relay.yaml"), drain("130ms")) },
		func() { must(os.WriteFile(in("relay.yaml"), drain("140ms"), 0o600)) },
		func() { // SIGHUP, which may come first, or after the file was already read
			must(os.WriteFile(in("relay.yaml"), drain("150ms"), 0o600))
			r.Signal(syscall.SIGHUP)
		},
	} {
		change()
		r.WaitLog(t, i+1, "changed=downstream.drain\n")
	}
	if n := strings.Count(r.Log(), reloaded); n != 5 {
		t.Errorf("%d reloads of five changes", n)
	}
	o.Put("edge", xdstest.Web(2)...)
	waitFor(t, c, "a change", has(xdstest.Cluster("web", 2)))
	if n := c.Counters().Streams; n != 1 {
		t.Errorf("%s needed %d streams", c, n)
	}
	if !regexp.MustCompile(`(?s)^\S+ level=INFO msg="configuration loaded" config=\S+relay\S*\.yaml name=\S+ rules=1 store=off origins=` + regexp.QuoteMeta(o.Address) + `\n.* msg=serving [^\n]* tls=off admin_tls=off\n`).MatchString(r.Log()) {
		t.Error("the first lines do not name the file and the origins")
	}
	r.Signal(syscall.SIGTERM)
	r.Stop()
	if !strings.Contains(r.Log(), "msg=draining over=150ms") {
		t.Error("the drain is not over the newest time")
	}
}

// A configuration from a pipe can be read once. It stays in force, and SIGHUP reads the files that it
// names.
func TestConfigurationFromAPipe(t *testing.T) {
	t.Parallel()
	o := origin(t, xdstest.Linear)
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("- key: node.cluster\n")
	read, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	text := xdstest.QuickConfig().With(xdstest.Config{"upstream.origins": xdstest.Origins(o.Address), "aggregation.file": rules}).Text()
	if _, err := to.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := xdstest.Command(t, "serve", "--config", "/dev/fd/3")
	cmd.ExtraFiles = []*os.File{read}
	r := &relay{xdstest.StartRelayCommand(t, cmd), t}
	_ = read.Close() // the process has its own copy
	r.prints("reload", "the configuration has not changed\n")
	write("- key: node.id\n")
	r.prints("reload", "the configuration has not changed\n") // it was reloaded before or by this command
	r.WaitLog(t, 1, "changed=aggregation.file")
	if strings.Contains(r.Log(), "not reloaded") || r.info().Configuration.Rejected != nil {
		t.Errorf("the configuration is rejected:\n%s", r.Log())
	}
}

// serverInfo is the part of /server_info that the tests read.
type serverInfo struct {
	Level         string `json:"log_level"`
	Configuration struct {
		NeedsRestart []string `json:"needs_restart"`
		Rejected     *struct {
			Faults []string `json:"faults"`
		} `json:"rejected"`
	} `json:"configuration"`
	Problems []problem `json:"problems"`
}

// problem is one of the relay's own problems.
type problem struct{ Severity, Text string }

func (r *relay) info() (i serverInfo) {
	r.t.Helper()
	if err := r.GetJSON("/server_info", &i); err != nil {
		r.t.Fatal(err)
	}
	return i
}
