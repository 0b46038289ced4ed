package rulestatus

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"xdsrelay/internal/admin/keystatus"
	"xdsrelay/internal/admin/overview"
	"xdsrelay/internal/aggregator"
	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

var table xds.NodeTable

func clientOf(t *testing.T, key, node string) inspect.ClientStatus {
	t.Helper()
	m := new(corev3.Node)
	xdstest.NoError(t, protojson.Unmarshal([]byte(node), m))
	raw := xdstest.Must(proto.MarshalOptions{Deterministic: true}.Marshal(m))(t)
	n := xdstest.Must(table.Intern(raw))(t)
	return inspect.ClientStatus{FullNode: n, Types: []inspect.TypeStatus{{Key: key}, {Key: key}, {}}}
}

// The fields in which the nodes of a key differ, the most telling ones first. The id is none of them.
func TestDifferences(t *testing.T) {
	clients := []inspect.ClientStatus{{}}
	for i := range 4 {
		clients = append(clients, clientOf(t, "edge", fmt.Sprintf(
			`{"id": "n%d", "cluster": "c", "locality": {"zone": "z%d"}, "metadata": {"NAME": "pod-%d", "LABELS": {"app": "a%d"}, "same": [1]}}`, i, i%2, i, i%3)))
	}
	clients = append(clients, clientOf(t, "edge", `{"id": "x", "cluster": "c", "user_agent_name": "gRPC Go", "metadata": {"same": [1]}}`),
		clientOf(t, "one", `{"id": "y"}`))
	for i := range maxValues + 5 {
		clients = append(clients, clientOf(t, "many", fmt.Sprintf(`{"id": "n%d", "metadata": {"a": %d}}`, i, i)))
	}
	got := Differences(slices.Values(clients), "", time.Minute)
	if text := got["edge"].String(); got["edge"].Nodes != 5 || text != "user_agent_name: 2 values, locality.zone: 3 values, metadata.LABELS.app: 4 values, metadata.NAME: 5 values" {
		t.Errorf("%+v", got["edge"])
	}
	if text := got["one"].String(); text != "" {
		t.Error(text)
	}
	if text := got["many"].String(); text != "metadata.a: 100+ values" {
		t.Error(text)
	}
	if got := Differences(slices.Values(clients), "one", time.Minute); len(got) != 1 || got["one"].Nodes != 1 {
		t.Errorf("%+v", got)
	}
}

// The fields of a node are bounded, and so are those that are shown.
func TestDifferencesAreBounded(t *testing.T) {
	var clients []inspect.ClientStatus
	for i := range 2 {
		var fields []string
		for j := range 2 * maxFields {
			fields = append(fields, fmt.Sprintf(`"f%d": %d`, j, i))
		}
		clients = append(clients, clientOf(t, "k", `{"metadata": {`+strings.Join(fields, ", ")+`}}`))
	}
	d := Differences(slices.Values(clients), "", time.Minute)["k"]
	if len(d.Fields) != maxShown || d.More+len(d.Fields) > maxFields || !strings.HasSuffix(d.String(), "more fields") {
		t.Errorf("%d %d %s", len(d.Fields), d.More, d)
	}
}

// A shared key is a problem while it is in use.
func TestSharedKeyIsAProblem(t *testing.T) {
	shared := []aggregator.SharedKey{{Key: xds.NewKey("gone"), Rules: [2]string{"a", "b"}}, {Key: xds.NewKey("edge", "eu"), Rules: [2]string{"rules[0]", "rules[2]"}}}
	var got []string
	say := func(p overview.Problem) { got = append(got, p.Severity+": "+p.Text) }
	KeyProblems([]keystatus.Key{{Key: "edge/eu"}, {Key: "x"}}, shared, say)
	if want := "[warning: 1 key has nodes of different rules, for example key edge/eu: rules[0] and rules[2]]"; fmt.Sprint(got) != want {
		t.Error(got)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
