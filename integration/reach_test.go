package integration

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc/codes"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xdstest"
)

// originShown is an origin in /origins.
type originShown struct {
	Away        bool   `json:"away"`
	Reached     string `json:"reached"`
	Connections int    `json:"connections"`
	LastError   string `json:"last_error"`
}

// shows waits until /origins has one origin for which the condition holds.
func (r *relay) shows(what string, is func(originShown) bool) {
	r.t.Helper()
	xdstest.Eventually(r.t, what, func() error {
		var got struct{ Items []originShown }
		if err := r.GetJSON("/origins", &got); err != nil {
			return err
		}
		if len(got.Items) != 1 || !is(got.Items[0]) {
			return xdstest.ErrNotYet
		}
		return nil
	})
}

// status waits until `relay status` prints all these texts.
func (r *relay) status(texts ...string) {
	r.t.Helper()
	var out []byte
	err := xdstest.Poll(xdstest.Patience, xdstest.Patience/100, func() error {
		out, _ = xdstest.Command(r.t, "status", "--admin", r.Admin).CombinedOutput()
		if slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(string(out), text) }) {
			return xdstest.ErrNotYet
		}
		return nil
	})
	if err != nil {
		r.t.Fatalf("relay status does not print %q:\n%s", texts, out)
	}
}

// The relay connects to its origin at the start. A wrong origin shows before any client comes, with
// the words of the resolver, the dialer or the TLS library. The relay is ready all the same.
func TestAWrongOriginShowsBeforeAClientComes(t *testing.T) {
	plain := origin(t, xdstest.Linear)
	missing := filepath.Join(t.TempDir(), "missing")
	for _, c := range []struct {
		name   string
		origin map[string]any
		want   string
	}{
		{"unknown host", map[string]any{"address": "nowhere.invalid:18000"}, "lookup nowhere.invalid"},
		{"refused port", map[string]any{"address": "127.0.0.1:1"}, "dial tcp 127.0.0.1:1: connect: connection refused"},
		{"TLS to plaintext", map[string]any{"address": plain.Address, "tls": map[string]any{"server_name": "origin.test"}}, "first record does not look like a TLS handshake"},
		{"missing directory", map[string]any{"address": "file://" + missing}, "read directory: open " + missing + ": no such file or directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.origin["name"] = "wrong"
			r := serve(t, "", xdstest.Config{"upstream.origins": []map[string]any{c.origin}})
			r.shows("an origin that was never reached", func(o originShown) bool {
				return o.Away && o.Reached == "" && o.Connections == 0 && strings.Contains(o.LastError, c.want)
			})
			r.WaitMetric(1, "upstream_away", "origin", "wrong")
			r.status("! origin wrong has never been reached: ", c.want)
			if log := r.Log(); strings.Count(log, `msg="origin is away"`) != 1 || !strings.Contains(log, c.want) || !strings.Contains(log, "never_reached=true") {
				t.Errorf("log:\n%s", log)
			}
			if _, err := r.Get("/ready"); err != nil {
				t.Errorf("/ready: %v", err)
			}
		})
	}
}

// The relay keeps its connection to an origin without clients. The problem of an origin that is
// away says how many clients are served and how often clients were refused.
func TestAConnectionToTheOriginIsKept(t *testing.T) {
	o := origin(t, xdstest.Linear)
	o.Put("edge", xdstest.Web(1)...)
	r := serve(t, o.Address, nil)
	there := func(o originShown) bool { return !o.Away && o.Reached != "" && o.Connections == 1 }
	gone := func(o originShown) bool { return o.Away && o.Reached != "" && o.Connections == 0 }
	r.shows("a connection at the start", there)
	o.Stop()
	r.shows("the loss", gone)
	o.Start()
	r.shows("the connection", there)

	c := client(t, r.Address, fleet.ClientConfig{Node: node("n", "edge"), Variant: fleet.Delta, Behaviour: fleet.Envoy})
	waitFor(t, c, "what the origin has", hasAll(xdstest.Web(1)...))
	o.Stop()
	r.shows("the loss", gone)
	r.status("is away: dial tcp "+o.Address+": connect: connection refused", "The relay serves 1 client from what it has. No changes arrive for it.", "The relay refuses new clients for which it has nothing.")
	s := xdstest.OpenStream(t, r.Address, methods[fleet.Delta])
	s.Ask(node("other", "nothing-held"), resource.ClusterType)
	s.WantEnd(codes.Unavailable)
	r.status("The relay refused clients 1 time in the last minute, because it has nothing for them.")
	o.Start()
	r.shows("the connection", there)
	xdstest.Eventually(t, "both returns are logged", xdstest.Holds(func() bool { return strings.Count(r.Log(), "origin is back") == 2 }))
}
