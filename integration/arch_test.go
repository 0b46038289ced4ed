package integration

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	module          = "xdsrelay"
	maxLines        = 600  // of a file
	maxPackageLines = 3000 // of a package in cmd, config or internal, without tests
)

// place lists the packages of this module that a package may import, and the reason why it may
// import no others.
type place struct {
	may []string
	why string
}

// layers has every package of the module, the lowest layer first. A package imports only packages
// of lower layers and of its own directory, as internal/fanout. The packages of layer 0 also import
// each other. A new package must be added here first.
var layers = map[string]place{
	// Layer 0.
	"internal/xds":          {nil, "the types of the protocol do not depend on their users"},
	"internal/xds/snapshot": {[]string{"internal/xds"}, "it is data and how it changes, and does not know where it comes from"},
	"internal/anytypes":     {nil, "it only links messages"},
	"internal/buffers":      {nil, "a buffer pool does not depend on the content of buffers"},
	"internal/filewatch":    {nil, "it reports that files changed, and reads none"},
	"internal/spelling":     {nil, "a word is spelled the same, whatever it names"},
	"internal/expr":         {[]string{"internal/xds", "internal/spelling"}, "expressions see nodes, peers and types, not their callers"},
	"internal/telemetry":    {[]string{"internal/xds"}, "every package counts: whatever it imported, every package would import"},
	"internal/telemetry/tlsfiles": {
		[]string{"internal/telemetry", "internal/filewatch"},
		"certificates are the same for clients, origins and operators",
	},
	"internal/telemetry/logsample": {nil, "sampling of repeated lines does not depend on their meaning"},
	"internal/telemetry/redact":    {nil, "redaction does not depend on the place where a text is shown"},
	"internal/telemetry/logging": {
		[]string{"internal/telemetry/logsample", "internal/telemetry/redact", "config"},
		"a line is written, whatever it says",
	},
	"internal/telemetry/tracing": {
		[]string{"internal/xds", "internal/telemetry", "internal/telemetry/redact"},
		"a trace goes with an update and does not depend on the packages on its way",
	},
	"internal/telemetry/tracing/otlptest": {nil, "it receives spans of any program"},
	"internal/telemetry/tlsfiles/tlstest": {nil, "it signs certificates for the tests of all layers"},
	"config":                              {[]string{"internal/spelling"}, "the file's structs are read by validate and by tools that run nothing of the relay"},

	// Layer 1. Packages of different directories do not import each other; the orchestrator joins them.
	"internal/aggregator": {
		[]string{"internal/xds", "internal/expr", "internal/telemetry", "internal/telemetry/redact", "config"},
		"a node's key is a pure function, which explain and validate call without a relay",
	},
	"internal/upstream": {
		[]string{"internal/upstream/adsclient", "internal/upstream/connections", "internal/upstream/filesource",
			"internal/upstream/suspects", "internal/upstream/timing",
			"internal/xds", "internal/xds/snapshot", "internal/telemetry", "internal/telemetry/redact", "internal/telemetry/tlsfiles", "internal/telemetry/tracing", "internal/buffers"},
		"it passes Updates to a Sink, and does not depend on their use; of the admin API it knows only the names of its own status",
	},
	"internal/upstream/adsclient": {
		[]string{"internal/xds", "internal/xds/snapshot"},
		"a conversation is a function of state, message and time: it needs no transport, metric or log",
	},
	"internal/upstream/timing": {nil, "a wait does not depend on what waits"},
	"internal/upstream/suspects": {
		[]string{"internal/xds", "internal/xds/snapshot"},
		"what is excluded is a function of the results of trials",
	},
	"internal/upstream/connections": {
		[]string{"internal/telemetry", "internal/telemetry/tlsfiles"},
		"it connects, and knows nothing of streams",
	},
	"internal/upstream/filesource": {
		[]string{"internal/xds", "internal/xds/snapshot", "internal/telemetry", "internal/telemetry/redact", "internal/telemetry/tracing", "internal/anytypes", "internal/filewatch"},
		"it reaches a key through the Stream that it defines, and does not depend on other origins",
	},
	"internal/upstream/upstreamtest": {
		[]string{"internal/xds", "internal/xds/snapshot"},
		"it is a kit for the tests of upstream and its sub-packages, which it must not import",
	},
	"internal/cluster": {
		[]string{"internal/xds", "internal/telemetry", "internal/filewatch"},
		"it knows members and who owns a key, and not what owners do; of the admin API it knows only the names of a member",
	},
	"internal/cluster/clustertest": {nil, "it is a network for the tests of all floors"},
	"internal/fanout": {
		[]string{"internal/fanout/session", "internal/fanout/inspect", "internal/fanout/listener", "internal/fanout/subscriber", "internal/fanout/nonce", "internal/fanout/tokens", "internal/fanout/refusal", "internal/fanout/rest", "internal/xds", "internal/xds/snapshot", "internal/expr", "internal/telemetry", "internal/telemetry/tracing", "internal/buffers", "config"},
		"it reads a subscriber's State, and does not depend on the State's source",
	},
	"internal/fanout/session": {
		[]string{"internal/xds", "internal/xds/snapshot"},
		"a client's responses follow from requests, snapshots and times: it needs no stream and no metric",
	},
	"internal/fanout/listener": {
		[]string{"internal/fanout/refusal", "internal/fanout/tokens", "internal/xds", "internal/expr", "internal/telemetry", "config"},
		"admission follows from a connection and a node: it needs no stream and no response",
	},
	"internal/fanout/tokens": {
		[]string{"internal/fanout/refusal", "internal/telemetry", "internal/telemetry/redact"},
		"a token is valid or not, whatever it is for",
	},
	"internal/fanout/tokens/tokenstest": {nil, "it issues tokens for the tests of all layers"},
	"internal/fanout/nonce":             {nil, "a nonce follows from two numbers"},
	"internal/fanout/refusal":           {[]string{"internal/telemetry", "internal/telemetry/redact"}, "the reason of a refusal does not depend on the package that refuses"},
	"internal/fanout/subscriber": {
		[]string{"internal/fanout/refusal", "internal/fanout/tokens", "internal/xds", "internal/xds/snapshot", "internal/expr", "internal/telemetry", "internal/telemetry/redact"},
		"it is the interface between clients and groups, and knows the implementation of neither",
	},
	"internal/fanout/subscriber/subscribertest": {
		[]string{"internal/fanout/subscriber", "internal/fanout/refusal", "internal/fanout/session/sessiontest", "internal/xds", "internal/xds/snapshot", "internal/expr", "internal/telemetry"},
		"it has groups for the tests of fanout and rest",
	},
	"internal/fanout/inspect": {
		[]string{"internal/fanout/session", "internal/fanout/subscriber", "internal/xds", "internal/xds/snapshot", "internal/telemetry", "internal/telemetry/redact"},
		"it reads clients through an interface, and knows no stream and no poll",
	},
	"internal/fanout/rest": {
		[]string{"internal/fanout/session", "internal/fanout/inspect", "internal/fanout/listener", "internal/fanout/subscriber", "internal/fanout/refusal", "internal/fanout/tokens", "internal/xds", "internal/xds/snapshot", "internal/expr", "internal/telemetry", "internal/telemetry/redact", "config"},
		"it is a transport beside the streams, and knows none of them",
	},
	"internal/fanout/rest/resttest": {
		[]string{"internal/xds", "internal/anytypes", "internal/xdstest"},
		"it polls a listener as a client would",
	},
	"internal/fanout/session/sessiontest": {[]string{"internal/xds", "internal/xds/snapshot"}, "it makes a session's input, and does not depend on the session"},
	"internal/store": {
		[]string{"internal/xds", "internal/xds/snapshot", "internal/telemetry", "config"},
		"it stores the snapshots that it is given, and does not depend on their source",
	},

	// Layer 2.
	"internal/ownership": {
		[]string{"internal/xds", "internal/xds/snapshot", "internal/telemetry", "internal/cluster", "internal/upstream", "internal/store", "internal/fanout/listener", "internal/fanout/subscriber", "internal/fanout/refusal"},
		"it chooses the source of a key, and does not depend on what the key holds",
	},
	"internal/orchestrator/history": {
		[]string{"internal/xds", "internal/xds/snapshot", "internal/fanout/subscriber", "internal/fanout/inspect"},
		"it records events, and serves nothing to clients",
	},
	"internal/orchestrator/audience": {
		[]string{"internal/xds", "internal/xds/snapshot"},
		"who wants what follows from subscriptions and times: it needs no stream, metric or log",
	},
	"internal/orchestrator/content": {
		[]string{"internal/xds", "internal/xds/snapshot"},
		"what is held follows from Updates and times: it needs no stream, metric or log",
	},
	"internal/orchestrator": {
		[]string{"internal/orchestrator/audience", "internal/orchestrator/content", "internal/orchestrator/history", "internal/xds", "internal/xds/snapshot", "internal/expr", "internal/telemetry", "internal/telemetry/redact", "internal/telemetry/tracing",
			"internal/aggregator", "internal/upstream", "internal/upstream/timing", "internal/fanout/subscriber", "internal/fanout/refusal", "internal/store"},
		"it joins the packages of layer 1, and higher layers read it",
	},

	// Layer 3.
	"internal/admin/web": {nil, "it has only files for browsers, which read the relay's other paths"},
	"internal/admin/keystatus": {
		[]string{"internal/xds", "internal/xds/snapshot", "internal/telemetry", "internal/telemetry/redact", "internal/upstream", "internal/fanout/inspect", "internal/orchestrator", "internal/orchestrator/history"},
		"it reads what groups publish; the HTTP API is above it",
	},
	"internal/admin/overview": {
		[]string{"internal/xds", "internal/telemetry", "internal/upstream", "internal/fanout/inspect", "internal/fanout/refusal", "internal/admin/keystatus"},
		"it computes numbers from values and metrics, and does not depend on the API that shows them",
	},
	"internal/admin/memberread": {
		[]string{"internal/xds", "internal/telemetry", "internal/cluster", "internal/fanout/listener"},
		"it passes requests and answers on; the HTTP API is above it",
	},
	"internal/admin/sources": {
		[]string{"internal/xds", "internal/upstream", "internal/cluster", "internal/admin/keystatus", "internal/admin/overview", "internal/spelling"},
		"it makes values of what operators read; the HTTP API is above it",
	},
	"internal/admin/rulestatus": {
		[]string{"internal/xds", "internal/expr", "internal/telemetry/redact", "internal/aggregator", "internal/fanout", "internal/fanout/inspect", "internal/fanout/subscriber", "internal/admin/keystatus", "internal/admin/overview"},
		"it evaluates rules for connected clients; the HTTP API is above it",
	},
	"internal/admin/compare": {
		[]string{"internal/xds", "internal/xds/snapshot", "internal/telemetry/redact", "internal/admin/jsonyaml"},
		"it shows resources; the HTTP API is above it",
	},
	"internal/admin/jsonyaml": {nil, "it encodes any value"},
	"internal/admin": {
		[]string{"internal/admin/web", "internal/admin/compare", "internal/admin/jsonyaml", "internal/admin/overview", "internal/admin/keystatus", "internal/admin/memberread", "internal/admin/rulestatus", "internal/admin/sources", "internal/xds", "internal/xds/snapshot", "internal/expr", "internal/telemetry", "internal/telemetry/redact", "internal/telemetry/tlsfiles", "internal/anytypes", "config",
			"internal/aggregator", "internal/cluster", "internal/upstream", "internal/fanout", "internal/fanout/inspect", "internal/fanout/refusal", "internal/fanout/subscriber", "internal/store", "internal/orchestrator/history", "internal/spelling"},
		"it reads status as values, through interfaces of its own; lower layers do not depend on it",
	},

	"internal/admin/grpcadmin": {
		[]string{"internal/xds", "internal/xds/snapshot", "internal/telemetry/redact", "internal/anytypes", "internal/fanout/inspect"},
		"admin authorizes calls through an interface; it reads clients as values, and no keys and origins",
	},

	// Beside the relay: clients, and tests of the built binary.
	"internal/fleet": {
		[]string{"internal/xds", "internal/anytypes"},
		"simulated clients that shared the relay's code would share its mistakes",
	},
	"integration": {
		[]string{"internal/xds", "internal/anytypes", "internal/fleet", "internal/telemetry/tracing/otlptest", "internal/fanout/tokens/tokenstest", "internal/xdstest"},
		"it tests the built binary from outside",
	},
	"integration/envoy": {
		[]string{"internal/xdstest"},
		"it tests the built binary with real Envoys",
	},
	"integration/grpcio": {
		[]string{"internal/xdstest"},
		"it tests the built binary with gRPC's C-core",
	},
	"internal/xdstest": {nil, "tests that shared the relay's code would share its mistakes"},
	"integration/hostile": {
		[]string{"internal/xds", "internal/fleet", "internal/xdstest"},
		"it attacks the built binary from outside",
	},
	"integration/conformance": {
		[]string{"internal/xdstest"},
		"it tests the built binary, and shares no protocol code with it",
	},
	"integration/origins/gocontrolplane": {nil, "it is an origin, and is also built with another version of go-control-plane"},
	"integration/model": {
		[]string{"internal/xds", "internal/telemetry", "config",
			"internal/aggregator", "internal/upstream", "internal/fanout", "internal/fanout/listener", "internal/orchestrator"},
		"it runs the relay over pipes in one process, with a fake clock",
	},
	"integration/cluster": {
		[]string{"internal/xds", "internal/fleet", "internal/telemetry/tlsfiles/tlstest", "internal/xdstest"},
		"it runs the built binary as a cluster",
	},
	"integration/robust": {
		[]string{"internal/xds", "internal/fleet", "internal/xdstest", "integration/robust/check"},
		"it runs the built binary and reads only its messages",
	},
	"integration/robust/check": {
		nil,
		"a history is checked by itself, without protocol code of the relay or its clients",
	},
	"integration/loadtest": {
		nil,
		"it measures the built binary from outside",
	},

	// Layer 4. What several commands need without a relay.
	"internal/terminal": {
		[]string{"internal/xds", "internal/admin/jsonyaml"},
		"it prints what a command gives it, and asks nothing itself",
	},
	"internal/validation": {
		[]string{"internal/aggregator", "internal/expr", "internal/admin", "internal/fanout/tokens", "internal/store", "internal/telemetry/tlsfiles", "internal/upstream/filesource", "config"},
		"a configuration is right or wrong, whether or not a relay runs with it",
	},

	// Layer 5. A relay, and how commands ask one.
	"internal/relay": {
		[]string{"config", "internal/admin", "internal/admin/grpcadmin", "internal/admin/keystatus", "internal/admin/memberread", "internal/admin/overview", "internal/cluster", "internal/expr", "internal/fanout", "internal/fanout/listener", "internal/fanout/tokens", "internal/filewatch", "internal/orchestrator", "internal/ownership", "internal/store", "internal/telemetry", "internal/telemetry/logging", "internal/telemetry/logsample", "internal/telemetry/redact", "internal/telemetry/tlsfiles", "internal/telemetry/tracing", "internal/upstream", "internal/upstream/connections", "internal/upstream/timing", "internal/validation", "internal/xds"},
		"it joins the parts of a relay, and does not know how a command starts it",
	},
	"internal/adminclient": {
		[]string{"internal/terminal", "internal/admin", "internal/admin/overview", "internal/admin/sources", "internal/telemetry", "internal/telemetry/tlsfiles", "config"},
		"it asks a running relay over HTTP, and does not depend on what a command does with the answer",
	},

	// Layer 6. What a command does.
	"internal/explain": {
		[]string{"config", "internal/admin", "internal/admin/compare", "internal/adminclient", "internal/aggregator", "internal/expr", "internal/fleet", "internal/relay", "internal/telemetry/redact", "internal/terminal", "internal/upstream", "internal/xds", "internal/xds/snapshot"},
		"it computes keys and asks origins as a relay does, and serves no client",
	},
	"internal/demo": {
		[]string{"config", "internal/filewatch", "internal/fleet", "internal/relay", "internal/telemetry/logging", "internal/terminal", "internal/xds", "internal/spelling"},
		"it starts a relay as serve does, and knows its clients from outside",
	},
	"internal/wait": {
		[]string{"internal/terminal", "internal/adminclient", "internal/admin/keystatus", "internal/xds", "internal/spelling"},
		"it waits for what a running relay reports, and has no relay",
	},
	"internal/status": {
		[]string{"internal/terminal", "internal/adminclient", "internal/admin", "internal/admin/keystatus", "internal/admin/overview", "internal/fanout/inspect", "internal/xds", "internal/spelling"},
		"it prints what a running relay reports, and has no relay",
	},

	// Layer 7.
	"cmd/relay": {
		[]string{"config", "internal/admin", "internal/admin/compare", "internal/admin/grpcadmin", "internal/admin/keystatus", "internal/admin/rulestatus", "internal/admin/sources", "internal/adminclient", "internal/aggregator", "internal/cluster", "internal/demo", "internal/explain", "internal/expr", "internal/fanout/inspect", "internal/relay", "internal/spelling", "internal/status", "internal/telemetry", "internal/telemetry/logging", "internal/telemetry/logsample", "internal/telemetry/tlsfiles", "internal/terminal", "internal/upstream", "internal/validation", "internal/wait", "internal/xds"},
		"a command imports no other and no test",
	},
}

// never has the reasons for forbidden imports that a developer may want. They are more specific
// than those in layers.
var never = map[[2]string]string{
	{"internal/aggregator", "internal/upstream"}:   "a rule must give the same key whether or not an origin is reachable",
	{"internal/aggregator", "internal/fanout"}:     "fanout gets a key through subscriber.Joiner; explain gets one without a stream",
	{"internal/upstream", "internal/aggregator"}:   "it receives the key and its node, and must not depend on the clients (P58)",
	{"internal/upstream", "internal/fanout"}:       "an upstream that could see clients could wait for one (P16, P18)",
	{"internal/fanout", "internal/upstream"}:       "losing the origin changes nothing downstream (P53): fanout does not see origins",
	{"internal/fanout", "internal/aggregator"}:     "a member joins through subscriber.Joiner, which tests replace by a held State",
	{"internal/fanout", "internal/orchestrator"}:   "the group marks streams dirty, and streams read its States; a callback could hold a lock across both",
	{"internal/upstream", "internal/orchestrator"}: "the group is behind upstream.Sink: a stream can be tested against a real origin alone",
	{"internal/orchestrator", "internal/admin"}:    "the relay must run without its status API",
	{"internal/xds", "internal/telemetry"}:         "layer 0 does no I/O, and its callers count",
	{"internal/fanout", "internal/store"}:          "no client waits for a disk: the group learns what a client acknowledged",
	{"internal/upstream", "internal/store"}:        "an origin's updates go to the group, which knows what clients accepted",
	{"internal/fleet", "internal/fanout"}:          "the client must not read with the codec that it tests",
}

// forbidden returns why from may not import to, empty if it may.
func forbidden(from, to string) string {
	p, ok := layers[from]
	switch {
	case !ok:
		return fmt.Sprintf("%s is missing in layers", from)
	case slices.Contains(p.may, to):
		return ""
	}
	if why := never[[2]string{from, to}]; why != "" {
		return why
	}
	return p.why
}

// source is a Go file of this module.
type source struct {
	path string // from the module's root
	pkg  string // its directory, likewise
	file *ast.File
	set  *token.FileSet
}

func (s source) test() bool { return strings.HasSuffix(s.path, "_test.go") }

func (s source) imports() []string {
	var out []string
	for _, i := range s.file.Imports {
		if path, err := strconv.Unquote(i.Path.Value); err == nil {
			out = append(out, path)
		}
	}
	return out
}

// sources parses all files of the module, whatever their build tags, but not of modules in its
// subdirectories.
func sources(t *testing.T) []source {
	t.Helper()
	const root = ".."
	var out []source
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			_, noModule := os.Stat(filepath.Join(path, "go.mod"))
			switch name := d.Name(); {
			case path == root:
			case noModule == nil, name == "testdata", strings.HasPrefix(name, "."):
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		out = append(out, source{path: rel, pkg: filepath.ToSlash(filepath.Dir(rel)), file: file, set: set})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) == 0 {
		t.Fatal("no Go files found")
	}
	return out
}

// Packages import only what layers allows. Test files are exempt: their imports are not linked into
// the relay.
func TestImportsAreOfLowerLayers(t *testing.T) {
	for _, s := range sources(t) {
		if _, ok := layers[s.pkg]; !ok {
			t.Errorf("%s: package %s is missing in layers", s.path, s.pkg)
			continue
		}
		if s.test() {
			continue
		}
		for _, path := range s.imports() {
			to, ours := strings.CutPrefix(path, module+"/")
			if !ours {
				continue
			}
			if why := forbidden(s.pkg, to); why != "" {
				t.Errorf("%s imports %s: %s", s.path, to, why)
			}
		}
	}
}

// The table of layers is consistent: each forbidden import has a reason, there is no cycle, and it
// matches the design.
func TestLayersOfPackages(t *testing.T) {
	for pkg, p := range layers {
		if p.why == "" {
			t.Errorf("%s has no reason", pkg)
		}
		for _, to := range p.may {
			if _, ok := layers[to]; !ok {
				t.Errorf("%s may import %s, which does not exist", pkg, to)
			}
			if forbidden(to, pkg) == "" {
				t.Errorf("%s and %s may import each other", pkg, to)
			}
		}
	}
	for arrow, why := range never {
		if got := forbidden(arrow[0], arrow[1]); got != why {
			t.Errorf("%s may import %s, which must never be: %s", arrow[0], arrow[1], why)
		}
	}
	neighbours := []string{"internal/aggregator", "internal/upstream", "internal/fanout", "internal/store", "internal/cluster"}
	for _, from := range neighbours {
		for _, to := range neighbours {
			if forbidden(from, to) == "" {
				t.Errorf("%s may import its neighbour %s", from, to)
			}
		}
	}
}

// viper accepts unknown and wrongly typed keys and lower-cases names. Only one file may use it.
func TestViperIsImportedOnce(t *testing.T) {
	for _, s := range sources(t) {
		for _, path := range s.imports() {
			if strings.HasPrefix(path, "github.com/spf13/viper") && s.path != "config/load.go" {
				t.Errorf("%s imports viper; only config/load.go does", s.path)
			}
		}
	}
}

// A file has one subject. A longer file has several.
func TestFilesAreShort(t *testing.T) {
	for _, s := range sources(t) {
		if n := s.set.File(s.file.Pos()).LineCount(); n > maxLines {
			t.Errorf("%s has %d lines, over %d", s.path, n, maxLines)
		}
	}
}

// A bounded size keeps a package understandable for a newcomer.
func TestPackagesAreSmall(t *testing.T) {
	lines := make(map[string]int)
	for _, s := range sources(t) {
		top, _, _ := strings.Cut(s.pkg, "/")
		if !s.test() && slices.Contains([]string{"cmd", "config", "internal"}, top) {
			lines[s.pkg] += s.set.File(s.file.Pos()).LineCount()
		}
	}
	for pkg, n := range lines {
		if n > maxPackageLines {
			t.Errorf("%s has %d lines outside tests, over %d: split it", pkg, n, maxPackageLines)
		}
	}
}

// The doc.go of each package says what it is for, and its "# Concurrency" section what it
// guarantees.
func TestPackagesSayWhatTheyGuarantee(t *testing.T) {
	said := make(map[string]bool)
	for _, s := range sources(t) {
		if s.test() || s.file.Name.Name == "main" {
			continue
		}
		doc := s.file.Doc.Text()
		said[s.pkg] = said[s.pkg] || filepath.Base(s.path) == "doc.go" &&
			strings.HasPrefix(doc, "Package "+s.file.Name.Name+" ") && strings.Contains(doc, "\n# Concurrency\n")
	}
	for pkg, ok := range said {
		if !ok {
			t.Errorf(`%s has no doc.go that begins with "Package" and its name, and has a section "# Concurrency"`, pkg)
		}
	}
}

// A test that sleeps is slow when it passes, and fails on a slow machine. In a synctest bubble
// sleeping costs nothing and is exact.
func TestTestsDoNotSleep(t *testing.T) {
	for _, s := range sources(t) {
		if !s.test() || slices.Contains(s.imports(), "testing/synctest") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if of, ok := call.X.(*ast.Ident); ok && of.Name == "time" && call.Sel.Name == "Sleep" {
				t.Errorf("%s: a test sleeps: wait for the event", s.set.Position(n.Pos()))
			}
			return true
		})
	}
}

// Each package with tests detects leaked goroutines.
func TestTestsLookForLeaks(t *testing.T) {
	looks := make(map[string]bool)
	for _, s := range sources(t) {
		if !s.test() {
			continue
		}
		main := slices.ContainsFunc(s.file.Decls, func(d ast.Decl) bool {
			f, ok := d.(*ast.FuncDecl)
			return ok && f.Name.Name == "TestMain"
		})
		looks[s.pkg] = looks[s.pkg] || main &&
			(slices.Contains(s.imports(), "go.uber.org/goleak") || slices.Contains(s.imports(), module+"/internal/xdstest")) // xdstest.Main detects them
	}
	for pkg, ok := range looks {
		if !ok {
			t.Errorf("%s has tests and no TestMain that looks for leaks, with goleak", pkg)
		}
	}
}
