package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"xdsrelay/internal/explain"
	"xdsrelay/internal/validation"
	"xdsrelay/internal/xdstest"
)

// runRelay runs the program with args in this process.
func runRelay(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = run(args, &out, &err)
	return code, out.String(), err.String()
}

// A command whose output cannot be written fails.
func TestUnwrittenOutputIsAnError(t *testing.T) {
	o := operate(t, "")
	for _, args := range [][]string{{"status"}, {"origins"}, {"keys", "-o", "json"}, {"version"}, {"status", "--summary"}} {
		if args[0] != "version" {
			args = append(args, "--admin", o.admin)
		}
		var errs bytes.Buffer
		code := run(args, fullDisk{}, &errs)
		if code != 1 || !strings.HasPrefix(errs.String(), "relay: output: ") || !strings.Contains(errs.String(), syscall.ENOSPC.Error()) {
			t.Errorf("%v: %d %q", args, code, &errs)
		}
	}
}

// fullDisk is a file on a full disk.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// replace replaces a file at once, so that no reader sees a part.
func replace(t testing.TB, file, text string) {
	t.Helper()
	xdstest.WriteFile(t, file+".new", text)
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

func TestEveryCommandHasAnExample(t *testing.T) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if name := c.Name(); name == "help" || name == "completion" {
			return
		}
		if c.Example == "" || c.Short == "" {
			t.Errorf("%s has no example or no description", c.CommandPath())
		} else if s := c.Short[:1]; s != strings.ToUpper(s) { // like cobra's own
			t.Errorf("%s: %q", c.CommandPath(), c.Short)
		}
		// A terminal shows each in one line.
		if len(c.Short) >= 70 {
			t.Errorf("%s: long: %q", c.CommandPath(), c.Short)
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if len(f.Usage) >= 100 {
				t.Errorf("%s --%s: long: %q", c.CommandPath(), f.Name, f.Usage)
			}
		})
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	root := newRootCmd()
	walk(root)
	if code, out, _ := runRelay("validate", "--help"); code != 0 || !strings.Contains(out, "relay validate --config relay.yaml") {
		t.Errorf("%d %s", code, out)
	}
}

// The help lists the commands in the order in which users need them.
func TestHelpListsCommandsInOrder(t *testing.T) {
	_, out, _ := runRelay("--help")
	at := -1
	for _, name := range []string{"serve", "demo", "validate", "explain", "status", "origins", "keys", "rules", "members", "nacks", "diff", "dump", "wait", "reload", "simulate", "health", "version"} {
		next := strings.Index(out, "\n  "+name+" ")
		if next < at || next < 0 {
			t.Errorf("%s is not in its place:\n%s", name, out)
		}
		at = next
	}
}

func TestUnknownCommandsAndFlags(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
		help string // where to find help
	}{
		{[]string{"sevre"}, `relay: unknown command "sevre" for "relay"`, "\nrun \"relay --help\" for usage\n"},
		{[]string{"validate", "--confg", "x"}, "relay: unknown flag: --confg; did you mean --config?", "\nrun \"relay validate --help\" for usage\n"},
		{[]string{"serve", "--upstream.varient", "x"}, "relay: unknown flag: --upstream.varient; did you mean --upstream.variant?", "\nrun \"relay serve --help\" for usage\n"},
		{[]string{"demo", "--clients", "x"}, `relay: --clients: must be an integer, but is "x"`, "\nrun \"relay demo --help\" for usage\n"},
		{[]string{"completion", "bsh"}, `relay: unknown command "bsh" for "relay completion"`, "\nrun \"relay completion --help\" for usage\n"},
		{[]string{"validate", "x"}, `relay: validate: takes no arguments, but has "x"`, "\nrun \"relay validate --help\" for usage\n"},
		{[]string{"version", "-o", "xml"}, `relay: --output: must be one of text, json, yaml, but is "xml"`, "\nrun \"relay version --help\" for usage\n"},
		{[]string{"keys", "-o", "xml"}, `relay: --output: must be one of table, wide, json, yaml, but is "xml"`, "\nrun \"relay keys --help\" for usage\n"},
		{[]string{"dump"}, `relay: required flag(s) "key" not set`, "\nrun \"relay dump --help\" for usage\n"},
		{[]string{"simulate", "--relay", "x", "--clients", "0"}, "relay: --clients: must be at least 1, but is 0", "\nrun \"relay simulate --help\" for usage\n"},
		{[]string{"simulate", "--relay", "x", "--for", "-1s"}, "relay: --for: must not be negative, but is -1s", "\nrun \"relay simulate --help\" for usage\n"},
		{[]string{"status", "--summary", "--no-headers"}, "relay: --summary: cannot be used with --no-headers, because it prints several tables", "\nrun \"relay status --help\" for usage\n"},
		{[]string{"nacks", "--diff", "--no-headers"}, "relay: --diff: cannot be used with --no-headers, because it prints no table", "\nrun \"relay nacks --help\" for usage\n"},
		{[]string{"keys", "--watch", "-o", "json"}, "relay: --watch: prints tables only, so it cannot be used with -o json", "\nrun \"relay keys --help\" for usage\n"},
		{[]string{"explain"}, `relay: explain: needs NODE, --node FILE or --diff FILE`, "\nrun \"relay explain --help\" for usage\n"},
		{[]string{"validate", "-c", "/none"}, "relay: configuration: open /none", "directory\n"},
	} {
		if code, out, err := runRelay(c.args...); code != 1 || out != "" || !strings.HasPrefix(err, c.want) || !strings.HasSuffix(err, c.help) {
			t.Errorf("%v: %d, %s, %s", c.args, code, out, err)
		}
	}
}

const origins = "upstream: {origins: [{address: \"127.0.0.1:18000\"}]}\n"

func TestValidate(t *testing.T) {
	dir := xdstest.Files(t, map[string]string{
		"good.yaml":   origins,
		"bad.yaml":    "upstream:\n  origins: [{address: \"a:1\"}]\n  variant: both\n  lingr: 1s\n",
		"values.yaml": "upstream:\n  origins: [{address: \"a:1\"}]\n  variant: both\n",
		"exprs.yaml": `upstream:
  origins: [{address: "a:1"}]
  node: 'Node{id: 5}'
aggregation:
  rules:
    - {match: node.cluster, key: node.id}
    - key: nope
`,
		"files.yaml":   "upstream: {origins: [{address: \"file:none\"}]}\naggregation:\n  file: none.yaml\nadmin: {token_file: none}\n",
		"later.yaml":   "upstream: {origins: [{address: \"file:none\"}]}\n",
		"nodir.yaml":   "upstream: {origins: [{address: \"file:default.yaml\"}]}\n",
		"token.yaml":   origins + "admin: {token_file: default.yaml}\n",
		"tokens.yaml":  "upstream: {origins: [{address: \"127.0.0.1:1\", token_file: default.yaml}]}\ndownstream:\n  tokens: {issuer: i, audiences: [a], jwks_file: rules.yaml}\n",
		"url.yaml":     origins + "downstream:\n  tokens: {issuer: i, audiences: [a], jwks_url: \"https://i\",\n    jwks_ca_file: rules.yaml,\n    jwks_token_file: rules.yaml}\n",
		"warn.yaml":    origins + "aggregation: {file: rules.yaml}\n",
		"rules.yaml":   "fragments:\n- rules:\n  - {match: {any_match: true}, result: {string_fragment: a}}\n  - {match: {any_match: true}, result: {string_fragment: b}}\n",
		"default.yaml": "",
		"who.yaml":     origins + "downstream: {identity: node.idd == \"x\"}\n",
	})
	for _, c := range []struct {
		file string
		code int
		want string
	}{
		{"good.yaml", 0, "DIR/good.yaml is valid\n"},
		{"bad.yaml", 1, "DIR/bad.yaml:3: upstream.variant: must be delta or sotw, but is \"both\" (column 12)\nDIR/bad.yaml:4: upstream.lingr: unknown key; did you mean linger? (column 3)\n"},
		{"values.yaml", 1, "DIR/values.yaml:3: upstream.variant: must be delta or sotw, but is \"both\" (column 12)\n"},
		{"default.yaml", 1, "DIR/default.yaml:1: upstream.origins: must have at least one origin, such as [{address: \"127.0.0.1:18000\"}] (column 1)\n"},
		{"exprs.yaml", 1, `DIR/exprs.yaml:3: upstream.node: expected type of field 'id' is 'string' but provided type is 'int' (column 17)
DIR/exprs.yaml:6: aggregation.rules[0].match: must give bool, but gives string (column 15)
DIR/exprs.yaml:7: aggregation.rules[1].key[0]: undeclared reference to 'nope'; a text has quotes of its own: "'nope'" (column 12)
`},
		{"files.yaml", 1, `DIR/files.yaml:3: aggregation.file: open DIR/none.yaml: no such file or directory (column 9)
DIR/files.yaml:4: admin.token_file: open DIR/none: no such file or directory (column 21)
DIR/files.yaml:1: upstream.origins[0].address: warning: stat DIR/none: no such file or directory: the origin is away until the directory can be read (column 32)
`},
		{"later.yaml", 0, "DIR/later.yaml:1: upstream.origins[0].address: warning: stat DIR/none: no such file or directory: the origin is away until the directory can be read (column 32)\nDIR/later.yaml is valid\n"},
		{"nodir.yaml", 1, "DIR/nodir.yaml:1: upstream.origins[0].address: DIR/default.yaml is not a directory (column 32)\n"},
		{"token.yaml", 1, "DIR/token.yaml:2: admin.token_file: DIR/default.yaml: must have one token of printable ASCII characters without spaces (column 21)\n"},
		{"tokens.yaml", 1, `DIR/tokens.yaml:1: upstream.origins[0].token_file: DIR/default.yaml: must have one token of printable ASCII characters without spaces (column 59)
DIR/tokens.yaml:3: downstream.tokens.jwks_file: DIR/rules.yaml: not a JSON Web Key Set: invalid character 'r' in literal false (expecting 'a') (column 50)
`},
		{"url.yaml", 1, `DIR/url.yaml:4: downstream.tokens.jwks_ca_file: no certificate in DIR/rules.yaml (column 19)
DIR/url.yaml:5: downstream.tokens.jwks_token_file: DIR/rules.yaml: must have one token of printable ASCII characters without spaces (column 22)
`},
		{"warn.yaml", 0, "DIR/rules.yaml:4: fragments[0]: warning: rules[0] and rules[1] can both match a node; all matching rules add to the key, as in xds-relay (column 5)\nDIR/warn.yaml is valid\n"},
	} {
		code, out, errs := runRelay("validate", "--config", filepath.Join(dir, c.file))
		if want := strings.ReplaceAll(c.want, "DIR", dir); code != c.code || out != want || errs != "" {
			t.Errorf("%s: %d\n%s%s, want\n%s", c.file, code, out, errs, want)
		}
	}
	if code, out, _ := runRelay("validate", "--config", filepath.Join(dir, "who.yaml")); code != 1 ||
		!strings.Contains(out, "who.yaml:2: downstream.identity: undefined field 'idd'; did you mean id? (column 28)\n") {
		t.Errorf("%d %s", code, out)
	}
	if code, out, errs := runRelay("validate", "--config", filepath.Join(dir, "absent.yaml")); code != 1 || out != "" || !strings.HasPrefix(errs, "relay: configuration: open ") {
		t.Errorf("%d %s %s", code, out, errs)
	}
}

// Without --config the error says how to name a file.
func TestNoDefaultFile(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, cmd := range []string{"serve", "validate"} {
		if code, out, errs := runRelay(cmd); code != 1 || out != "" || !strings.HasSuffix(errs, "no such file or directory; use --config for another file\n") {
			t.Errorf("%s: %d %s%s", cmd, code, out, errs)
		}
	}
}

// Without a token there is no warning about it.
func TestNoWarningOfNoToken(t *testing.T) {
	file := filepath.Join(xdstest.Files(t, map[string]string{"r.yaml": origins + "admin: {address: \"0.0.0.0:19000\"}\n"}), "r.yaml")
	if code, out, _ := runRelay("validate", "-c", file); code != 1 || strings.Contains(out, "warning") || !strings.Contains(out, "admin.token_file") {
		t.Errorf("%d %s", code, out)
	}
}

func TestValidateAsData(t *testing.T) {
	dir := xdstest.Files(t, map[string]string{"r.yaml": origins + "log: {level: loud}\n"})
	file := filepath.Join(dir, "r.yaml")
	want := validation.Report{File: file}
	for _, format := range []string{"json", "yaml"} {
		code, out, _ := runRelay("validate", "-c", file, "-o", format)
		var got validation.Report
		var err error
		if format == "json" {
			err = json.Unmarshal([]byte(out), &got)
		} else {
			err = yaml.Unmarshal([]byte(out), &got)
		}
		if err != nil || code != 1 || got.File != want.File || got.Valid || len(got.Faults) != 1 || got.Faults[0].Line != 2 || got.Faults[0].Key != "log.level" {
			t.Errorf("%s: %d, %v\n%s", format, code, err, out)
		}
	}
}

// The environment and flags override the file, as for serve.
func TestValidateLayers(t *testing.T) {
	file := filepath.Join(xdstest.Files(t, map[string]string{"r.yaml": origins}), "r.yaml")
	t.Setenv("RELAY_LOG_LEVEL", "loud")
	if code, out, _ := runRelay("validate", "-c", file); code != 1 || out != "RELAY_LOG_LEVEL: log.level: must be debug, info, warn or error, but is \"loud\"\n" {
		t.Errorf("%d %s", code, out)
	}
	if code, out, _ := runRelay("validate", "-c", file, "--log.level=debug"); code != 0 {
		t.Errorf("%d %s", code, out)
	}
	if code, out, _ := runRelay("validate", "-c", file, "--log.level=debug", "--upstream.linger", "soon"); code != 1 ||
		out != "--upstream.linger: upstream.linger: must be a duration such as 30s, but is \"soon\"\n" {
		t.Errorf("%d %s", code, out)
	}
}

func TestDefaultFileIsValid(t *testing.T) {
	if code, out, errs := runRelay("validate", "--config", "../../config/relay.yaml"); code != 0 {
		t.Errorf("%d %s%s", code, out, errs)
	}
}

func TestExplain(t *testing.T) {
	dir := xdstest.Files(t, map[string]string{
		"relay.yaml": origins + `aggregation:
  rules:
    - {match: '"spiffe://x" in peer.uri_sans', key: '"proven"'}
    - {match: node.metadata.tenant == "a", types: [EDS], key: [node.cluster, node.locality.zone]}
    - {match: node.cluster.startsWith("e"), key: node.cluster}
`,
		"node.json": `{"id": "n1", "cluster": "edge", "locality": {"zone": "z1"}, "metadata": {"tenant": "a"}}`,
		"node.yaml": "id: n2\ncluster: web\n",
		"peer.json": `{"address": "10.0.0.1:1", "uri_sans": ["spiffe://x"], "dns_sans": [], "subject": ""}`,
		"bad.json":  `{"id": "n1", "clutser": "edge"}`,
		"bad.yaml":  "id: n1\nclutser: edge\n",
		"cut.json":  `{"id": "a",`,
		"boot.yaml": "admin: {}\nnode:\n  id: n3\n  cluster: edge\ndynamic_resources: {}\n",
		"boot.json": `{"static_resources": {}, "node": {"id": "n4", "clutser": "edge"}}`,
		"who.yaml":  "uri_san: [a]\n",
		"int.yaml":  "upstream: {origins: [{address: 'a:1'}]}\naggregation: {rules: [{match: int(node.cluster) > 1, key: node.id}, {key: node.cluster}]}\n",
	})
	args := func(more ...string) []string {
		out := []string{"explain", "--config", dir + "/relay.yaml"}
		for _, m := range more {
			out = append(out, strings.ReplaceAll(m, "DIR", dir))
		}
		return out
	}
	for _, c := range []struct {
		args []string
		code int
		want []string // lines, spaces folded
	}{
		{args("--node", "DIR/node.json", "--type", "eds"), 0, []string{
			"node n1", "cluster edge", "", "type EDS", "key edge/z1", "",
			"RULE PLACE RESULT MATCH",
			`aggregation.rules[0] DIR/relay.yaml:4 no match "spiffe://x" in peer.uri_sans`,
			"peer.uri_sans = []",
			`aggregation.rules[1] DIR/relay.yaml:5 match node.metadata.tenant == "a" for EDS`,
			`node.metadata.tenant = "a"`, `node.cluster = "edge"`, `node.locality.zone = "z1"`,
			`key[0] node.cluster -> "edge"`, `key[1] node.locality.zone -> "z1"`,
			`aggregation.rules[2] DIR/relay.yaml:6 not tried node.cluster.startsWith("e")`,
		}},
		{args("--node", "DIR/node.json", "--peer", "DIR/peer.json", "--type", "CDS"), 0, []string{
			"node n1", "cluster edge", "", "type CDS", "key proven", "",
			"RULE PLACE RESULT MATCH",
			`aggregation.rules[0] DIR/relay.yaml:4 match "spiffe://x" in peer.uri_sans`,
			`peer.uri_sans = ["spiffe://x"]`, `key[0] "proven" -> "proven"`,
			`aggregation.rules[1] DIR/relay.yaml:5 not tried node.metadata.tenant == "a" for EDS`,
			`aggregation.rules[2] DIR/relay.yaml:6 not tried node.cluster.startsWith("e")`,
		}},
		{args("--node", "DIR/node.yaml", "--type", "EDS"), 1, []string{
			"node n2", "cluster web", "", "type EDS",
			"refused no aggregation rule matches this node; tried: aggregation.rules[0]: no match; aggregation.rules[1]: no match, since its match failed: no such key: tenant; aggregation.rules[2]: no match", "",
			"RULE PLACE RESULT MATCH",
			`aggregation.rules[0] DIR/relay.yaml:4 no match "spiffe://x" in peer.uri_sans`,
			"peer.uri_sans = []",
			`aggregation.rules[1] DIR/relay.yaml:5 no match, since its match failed node.metadata.tenant == "a" for EDS`,
			"node.metadata.tenant = no such key: tenant",
			`aggregation.rules[2] DIR/relay.yaml:6 no match node.cluster.startsWith("e")`,
			`node.cluster = "web"`,
		}},
	} {
		code, out, errs := runRelay(c.args...)
		var got []string
		for _, l := range strings.Split(strings.TrimRight(out, "\n"), "\n") {
			got = append(got, strings.ReplaceAll(strings.Join(strings.Fields(l), " "), dir, "DIR"))
		}
		if code != c.code || errs != "" || !slices.Equal(got, c.want) {
			t.Errorf("%v: %d %s\n got %q\nwant %q", c.args[2:], code, errs, got, c.want)
		}
	}

	// An error that no value has.
	if code, out, errs := runRelay("explain", "--config", dir+"/int.yaml", "--node", dir+"/node.json"); code != 0 || !strings.Contains(out, `  node.cluster = "edge"`) || !strings.Contains(out, "  error: type conversion error") {
		t.Errorf("%d %s%s", code, out, errs)
	}

	// A bootstrap has a node; a refusal is an exit code in all formats.
	if code, out, errs := runRelay(args("--node", "DIR/boot.yaml", "--type", "CDS")...); code != 0 || !strings.HasPrefix(out, "node     n3\ncluster  edge\n") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if code, out, errs := runRelay(args("--node", "DIR/node.yaml", "-o", "json")...); code != 1 || errs != "" || !json.Valid([]byte(out)) {
		t.Errorf("%d %s%s", code, out, errs)
	}

	// Without --type all types are shown, equal ones together.
	_, out, _ := runRelay(args("--node", "DIR/node.json")...)
	if strings.Count(out, "\ntype ") != 2 || !strings.Contains(out, "type     CDS, LDS, SRDS, RDS, VHDS, SDS, RTDS, ECDS\n") || !strings.Contains(out, "type     EDS\n") {
		t.Error(out)
	}
	for _, format := range []string{"json", "yaml"} {
		var got explain.Keys
		var err error
		_, out, _ := runRelay(args("--node", "DIR/node.json", "-o", format)...)
		if format == "json" {
			err = json.Unmarshal([]byte(out), &got)
		} else {
			err = yaml.Unmarshal([]byte(out), &got)
		}
		if err != nil || got.Node != "n1" || len(got.Types) != 9 || got.Types[1].Key != "edge/z1" || got.Types[0].Key != "edge" ||
			got.Types[0].Rules[2].Key[0].Expr != "node.cluster" {
			t.Errorf("%s: %v\n%s", format, err, out)
		}
	}

	for _, c := range []struct {
		args []string
		want string
	}{
		{args("--node", "DIR/none.json"), "relay: --node: open DIR/none.json: no such file"},
		{args("--node", "DIR/bad.json"), "relay: --node DIR/bad.json: must be a node, or a bootstrap with a node: (line 1:14): unknown field \"clutser\"\n"},
		{args("--node", "DIR/cut.json"), "relay: --node DIR/cut.json: line 1: a value is missing, or a [ or { is not closed (did not find"},
		{args("--node", "DIR/bad.yaml"), "relay: --node DIR/bad.yaml: must be a node, or a bootstrap with a node: unknown field \"clutser\"\n"},
		{args("--node", "DIR/boot.json"), "relay: --node DIR/boot.json: unknown field \"clutser\"\n"},
		{args("--node", "DIR/node.json", "--peer", "DIR/who.yaml"), "relay: --peer DIR/who.yaml: line 1: unknown field uri_san; the fields are address, uri_sans, dns_sans, subject and token\n"},
		{args("--node", "DIR/node.json", "--type", "XDS"), `relay: invalid argument "XDS" for "-t, --type" flag: must be a URL or a short name such as CDS`},
		{args("--node", "DIR/node.json", "--config", "DIR/node.json"), "DIR/node.json:1: upstream.origins: must have at least one origin"},
	} {
		code, out, errs := runRelay(c.args...)
		if want := strings.ReplaceAll(c.want, "DIR", dir); code != 1 || out != "" || !strings.HasPrefix(errs, want) {
			t.Errorf("%v: %d %s%s", c.args, code, out, errs)
		}
	}
}

func TestExplainReadsStandardInput(t *testing.T) {
	file := filepath.Join(xdstest.Files(t, map[string]string{"r.yaml": origins}), "r.yaml")
	root := newRootCmd()
	var out bytes.Buffer
	root.SetArgs([]string{"explain", "-c", file, "--node", "-"})
	root.SetIn(strings.NewReader(`{"id": "a", "cluster": "b c"}`))
	root.SetOut(&out)
	if err := root.Execute(); err != nil || !strings.Contains(out.String(), "key      \"b c\"\n") {
		t.Errorf("%v %s", err, &out)
	}
	// The default rule has no place.
	if text := strings.Join(strings.Fields(out.String()), " "); !strings.Contains(text, "aggregation.rules[0] default match") {
		t.Error(text)
	}
}

func TestVersion(t *testing.T) {
	version = "v9.9.9"
	defer func() { version = "" }()
	if code, out, _ := runRelay("version"); code != 0 || !strings.HasPrefix(out, "relay v9.9.9, ") || strings.Count(out, "\n") != 1 {
		t.Errorf("%d %s", code, out)
	}
	_, long, _ := runRelay("version")
	if code, out, _ := runRelay("--version"); code != 0 || out != long {
		t.Errorf("%d %s", code, out)
	}
	var b buildInfo
	if _, out, _ := runRelay("version", "-o", "json"); json.Unmarshal([]byte(out), &b) != nil || b.Version != "v9.9.9" || b.Go == "" {
		t.Errorf("%s", out)
	}
	if _, out, _ := runRelay("version", "-o", "yaml"); yaml.Unmarshal([]byte(out), &b) != nil || !strings.Contains(out, "version: v9.9.9\n") {
		t.Errorf("%s", out)
	}
}

// The version is the linker's, or else the module's.
func TestVersionOfTheBuild(t *testing.T) {
	checkout := []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef0123"}, {Key: "vcs.time", Value: "2026-01-02T03:04:05Z"}, {Key: "vcs.modified", Value: "true"},
	}
	of := func(version string, settings []debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: version}, Settings: settings}
	}
	for _, c := range []struct {
		name, linked string
		info         *debug.BuildInfo
		want         string
	}{
		{"make build at a tag", "v1.2.3", of("(devel)", nil), "relay v1.2.3, go"},
		{"make build after a tag", "v1.2.3-4-g0123456-dirty", of("v1.2.4-0.20260102030405-0123456789ab+dirty", checkout), "relay v1.2.3-4-g0123456-dirty, revision 0123456789ab with changes, go"},
		{"go install of a version", "", of("v1.2.3", nil), "relay v1.2.3, go"},
		{"go build without a checkout", "", of("(devel)", nil), "relay dev, go"},
		{"go build without a version", "", of("", nil), "relay dev, go"},
		{"no information", "", nil, "relay dev, go"},
	} {
		if got := buildInfoOf(c.linked, c.info).String(); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestCompletion(t *testing.T) {
	if code, out, _ := runRelay("completion", "bash"); code != 0 || !strings.Contains(out, "relay") {
		t.Errorf("%d", code)
	}
}

// If no relay listens at the configured address, the error lists the faults of the configuration;
// with --admin it does not.
func TestAdminAddressOfAFaultyConfiguration(t *testing.T) {
	dir := xdstest.Files(t, map[string]string{
		"key.yaml":  origins + "admin: {address: '127.0.0.1:1'}\ndownstream: {nope: 3}\n",
		"rule.yaml": origins + "admin: {address: '127.0.0.1:1'}\naggregation: {rules: [{key: nope}]}\n",
		"good.yaml": origins + "admin: {address: '127.0.0.1:1'}\n",
	})
	for _, c := range []struct {
		args, want string
	}{
		{"status -c key.yaml", "does a relay run there? (dial tcp 127.0.0.1:1: connect: connection refused)\nno relay starts with these faults in its configuration, unless flags or environment variables override them:\nDIR/key.yaml:LINE: downstream.nope: unknown key"},
		{"dump --key k -c rule.yaml", "no relay starts with these faults in its configuration, unless flags or environment variables override them:\nDIR/rule.yaml:LINE: aggregation.rules[0].key[0]: undeclared reference to 'nope'"},
		{"wait --key k --type CDS --version v --timeout 50ms --every 10ms -c key.yaml", "\nDIR/key.yaml:LINE: downstream.nope: unknown key"},
		{"status -c good.yaml", ""},
		{"status -c key.yaml --admin 127.0.0.1:1", ""},
	} {
		args := strings.Fields(c.args)
		for i := range args {
			if strings.HasSuffix(args[i], ".yaml") {
				args[i] = filepath.Join(dir, args[i])
			}
		}
		code, out, errs := runRelay(args...)
		text := regexp.MustCompile(`yaml:\d+:`).ReplaceAllString(strings.ReplaceAll(out+errs, dir, "DIR"), "yaml:LINE:")
		if code != 1 || !strings.Contains(text, "nothing listens at http://127.0.0.1:1") || !strings.Contains(text, c.want) || c.want == "" && strings.Contains(text, "faults") {
			t.Errorf("%s: %d %s", c.args, code, text)
		}
		if strings.Count(text, "\nDIR/key.yaml:LINE: downstream.nope") > 1 {
			t.Errorf("%s: it is said more than once: %s", c.args, text)
		}
	}
}
