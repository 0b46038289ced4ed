package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"

	"xdsrelay/internal/xdstest"
)

// everything returns what the relay shows to operators, by what was asked: all paths of the admin
// API and all commands, with those of a key and a node, and CSDS if there is an address for it. It
// takes the paths and the commands from the relay's own lists, so that no new one is forgotten.
func (r *relay) everything(t testing.TB, key string, n *corev3.Node) map[string]string {
	t.Helper()
	node, err := protojson.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]string)
	if strings.Contains(r.Log(), "admin_grpc=1") {
		conn := xdstest.Dial(t, r.operators(), nil)
		view, err := statusv3.NewClientStatusDiscoveryServiceClient(conn).FetchClientStatus(xdstest.Context(t), &statusv3.ClientStatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		out["CSDS"] = prototext.Format(view)
	}
	r.paths(t, out, key, n.Id, string(node))
	r.commands(t, out, key, n.Id, string(node))
	return out
}

// together joins the values.
func together(shown map[string]string) string {
	var b strings.Builder
	for what, text := range shown {
		fmt.Fprintf(&b, "%s:\n%s\n", what, text)
	}
	return b.String()
}

// listedPath matches a line of the relay's list of its paths.
var listedPath = regexp.MustCompile(`(?m)^(?:(?:GET|HEAD|POST) +)+(/\S*)`)

func (r *relay) paths(t testing.TB, out map[string]string, key, id, node string) {
	t.Helper()
	key, id = url.PathEscape(key), url.PathEscape(id)
	requests := map[string][]string{
		"/ready":                 {"GET /ready"},
		"/live":                  {"GET /live"},
		"/server_info":           {"GET /server_info"},
		"/keys":                  {"GET /keys", "GET /keys?format=yaml"},
		"/keys/{key}":            {"GET /keys/" + key},
		"/clients":               {"GET /clients", "GET /clients?format=yaml"},
		"/clients/{node}":        {"GET /clients/" + id},
		"/nacks":                 {"GET /nacks", "GET /nacks?format=yaml", "GET /nacks?diff=true"},
		"/changes/{key}":         {"GET /changes/" + key + "?type=CDS&version=1"},
		"/progress/{key}":        {"GET /progress/" + key + "?type=CDS&version=1"},
		"/diff/{node}":           {"GET /diff/" + id + ""},
		"/config_dump":           {"GET /config_dump?key=" + key, "GET /config_dump?format=yaml&key=" + key},
		"/resources":             {"GET /resources?key=" + key},
		"/origins":               {"GET /origins"},
		"/members":               {"GET /members"},
		"/members/{member}":      {"GET /members/relay/keys"},
		"/events":                {"GET /events"},
		"/history":               {"GET /history"},
		"/find":                  {"GET /find?text=" + id[:1]},
		"/rules":                 {"GET /rules"},
		"/explain":               {"POST /explain"},
		"/explain/diff":          {"POST /explain/diff"},
		"/metrics":               {"GET /metrics"},
		"/logging":               {"GET /logging", "POST /logging?level=debug"},
		"/reload":                {"POST /reload"},
		"/drain":                 nil, // it ends the relay
		"/debug/pprof/{profile}": {"GET /debug/pprof/", "GET /debug/pprof/cmdline", "GET /debug/pprof/goroutine?debug=2", "GET /debug/pprof/heap?debug=1"},
		"/ui/{view}":             {"GET /ui/fleet"},
		"/assets/{file}":         {"GET /assets/words.js"},
		"/the list itself":       {"GET /"},
	}
	bodies := map[string]string{
		"POST /explain":      node,
		"POST /explain/diff": `{"rules": "[{key: [node.cluster, node.id]}]", "unmatched": "reject"}`,
	}
	list, err := r.Get("/")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range listedPath.FindAllStringSubmatch(string(list), -1) {
		if _, ok := requests[m[1]]; !ok {
			t.Errorf("nobody looks at the path %s", m[1])
		}
	}
	for _, all := range requests {
		for _, what := range all {
			out[what] = r.asked(t, what, bodies[what])
		}
	}
}

// asked returns the answer of the admin API to a request such as "GET /keys"; of a stream of events,
// its beginning.
func (r *relay) asked(t testing.TB, what, body string) string {
	t.Helper()
	method, path, _ := strings.Cut(what, " ")
	req, err := http.NewRequestWithContext(xdstest.Context(t), method, "http://"+r.Admin+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }() // only read
	if resp.StatusCode >= 500 || resp.StatusCode == http.StatusBadRequest {
		t.Errorf("%s: %s", what, resp.Status)
	}
	var text strings.Builder
	for buf := make([]byte, 64<<10); ; {
		n, err := resp.Body.Read(buf)
		text.Write(buf[:n])
		switch events := path == "/events"; {
		case err == io.EOF, events && strings.Contains(text.String(), "data: "):
			return text.String()
		case err != nil:
			t.Fatalf("%s: %v", what, err)
		}
	}
}

func (r *relay) commands(t testing.TB, out map[string]string, key, id, node string) {
	t.Helper()
	var info struct {
		Configuration struct {
			File string `json:"file"`
		} `json:"configuration"`
	}
	if err := json.Unmarshal([]byte(out["GET /server_info"]), &info); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "node.json")
	if err := os.WriteFile(file, []byte(node), 0o600); err != nil {
		t.Fatal(err)
	}
	admin, config := " --admin "+r.Admin, " --config "+info.Configuration.File
	calls := map[string][]string{
		"serve":      nil, // this relay
		"demo":       nil, // another relay
		"validate":   {config, config + " -o json"},
		"explain":    {config + " --node " + file, config + " -o json --node " + file, admin + " --diff " + info.Configuration.File},
		"status":     {admin, admin + " --summary", admin + " -o wide", admin + " -o json", admin + " -o json --summary"},
		"origins":    {admin, admin + " -o json"},
		"keys":       {admin, admin + " -o json"},
		"rules":      {admin, admin + " -o json"},
		"members":    {admin, admin + " -o json"},
		"nacks":      {admin, admin + " -o json", admin + " --diff", admin + " -o yaml --diff"},
		"diff":       {admin + " " + id, admin + " -o json " + id},
		"dump":       {admin + " --key " + key, admin + " -o json --key " + key},
		"wait":       {admin + " --type CDS --version 1 --timeout 1s --every 100ms --key " + key},
		"reload":     {admin},
		"simulate":   {" --for 20ms --clients 1 --relay " + r.Address},
		"health":     {admin},
		"version":    {""},
		"completion": {" bash"},
		"help":       {""},
		"__complete": {" dump" + admin + " --key ", " diff" + admin + " "},
	}
	list, _ := xdstest.Command(t, "__completeNoDesc", "").Output() // an error has no names
	names := strings.Fields(string(list))
	if len(names) < 15 {
		t.Errorf("the commands are %q", names)
	}
	for _, name := range names {
		if _, ok := calls[name]; !ok && !strings.HasPrefix(name, ":") {
			t.Errorf("nobody looks at the command %s", name)
		}
	}
	for name, all := range calls {
		for _, args := range all {
			said, _ := xdstest.Command(t, strings.Split(name+strings.ReplaceAll(args, "  ", " "), " ")...).CombinedOutput() // some fail
			what := "relay " + name + strings.NewReplacer(admin, "", config, "", info.Configuration.File, "FILE", file, "NODE").Replace(args)
			out[what] = string(said)
			if strings.Contains(string(said), "--help\" for usage") {
				t.Errorf("%s: %s", what, said)
			}
		}
	}
}
