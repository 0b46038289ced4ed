package integration

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
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

// HTTPS_PROXY and NO_PROXY act on origins, also on those in plaintext. Errors name the proxy.
func TestOriginBehindAProxy(t *testing.T) {
	t.Parallel()
	o := origin(t, xdstest.Linear)
	proxy := func(answer string) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go connect(c, answer, o.Address)
			}
		}()
		return l.Addr().String()
	}
	working, denying, missing := proxy("200 OK"), proxy("403 Forbidden"), xdstest.FreeAddress(t)
	for _, c := range []struct{ name, proxy, without, want string }{
		{"working", working, "", ""},
		{"denying", denying, "", "by the proxy " + denying + " of HTTPS_PROXY: failed to do connect handshake"},
		{"missing", "user:password@" + missing, "", "by the proxy " + missing + " of HTTPS_PROXY: dial tcp " + missing + ": connect: connection refused"},
		{"excluded", working, "origin.invalid", "lookup origin.invalid"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			config := xdstest.QuickConfig().With(xdstest.Config{"upstream.origins": xdstest.Origins("origin.invalid:18000")})
			r := start(t, "", []string{"HTTPS_PROXY=http://" + c.proxy, "NO_PROXY=" + c.without}, "serve", "--config", config.WriteFile(t))
			r.shows("the origin", func(o originShown) bool {
				if c.want == "" {
					return o.Connections == 1
				}
				return o.Away && strings.HasPrefix(o.LastError, c.want)
			})
		})
	}
}

// connect answers a CONNECT request. After 200 it connects the client to the target.
func connect(c net.Conn, answer, target string) {
	defer c.Close()
	in := bufio.NewReader(c)
	if _, err := http.ReadRequest(in); err != nil {
		return
	}
	if _, err := fmt.Fprintf(c, "HTTP/1.1 %s\r\n\r\n", answer); err != nil || !strings.HasPrefix(answer, "200") {
		return
	}
	to, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer to.Close()
	go func() { _, _ = io.Copy(c, to) }()
	_, _ = io.Copy(to, in)
}

// The relay connects to its origin at the start. A wrong origin shows before any client comes, with
// the words of the resolver, the dialer or the TLS library. The relay is ready all the same.
func TestWrongOriginShowsBeforeAClientComes(t *testing.T) {
	t.Parallel()
	plain := origin(t, xdstest.Linear)
	missing := filepath.Join(t.TempDir(), "missing")
	for _, c := range []struct {
		name   string
		origin map[string]any
		want   string
	}{
		{"unknown host", map[string]any{"address": "nowhere.invalid:18000"}, "lookup nowhere.invalid"},
		{"refused port", map[string]any{"address": "127.0.0.1:1"}, "dial tcp 127.0.0.1:1: connect: connection refused"},
		{"TLS to plaintext", map[string]any{"address": plain.Address, "tls": map[string]any{"server_name": "origin.test"}}, "the server does not speak TLS; check the port in upstream.origins[].address, or leave out upstream.origins[].tls"},
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
func TestConnectionToTheOriginIsKept(t *testing.T) {
	t.Parallel()
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
