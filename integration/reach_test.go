package integration

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

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
