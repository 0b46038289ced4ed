package upstream

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"xdsrelay/internal/upstream/connections"
	"xdsrelay/internal/xds"
)

// listenWith accepts connections on loopback and calls answer for each.
func listenWith(t *testing.T, answer func(net.Conn)) (address string) {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var conns []net.Conn
	go func() {
		defer close(done)
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			conns = append(conns, c)
			answer(c)
		}
	}()
	t.Cleanup(func() {
		_ = lis.Close()
		<-done
		for _, c := range conns {
			_ = c.Close()
		}
	})
	return lis.Addr().String()
}

// The error tells a listener that does not speak HTTP/2 from a missing listener.
func TestP53_OriginThatSpeaksNoHTTP2(t *testing.T) {
	silent := func(net.Conn) {}
	http1 := func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n") }
	const long, short = time.Hour, 100 * time.Millisecond
	for _, c := range []struct {
		name    string
		answer  func(net.Conn)
		timeout time.Duration
		want    string
	}{
		{"silence", silent, short, "connected, but no HTTP/2 within 100ms"},
		{"HTTP/1.1", http1, long, "connected, but the server does not speak HTTP/2; if it needs TLS"},
	} {
		t.Run(c.name, func(t *testing.T) {
			address := listenWith(t, c.answer)
			r := newRelay(t, xds.SotW, Options{}, address)
			r.reconnect(func(o *connections.Options) { o.Timeout = c.timeout })
			r.launch()
			_, sink := r.stream(named(rds, "a"))
			sink.Until(t, "failure", func() bool { return sink.lastStatus().Failed })
			if st := sink.lastStatus(); !strings.Contains(st.Err.Error(), c.want) || st.Origin != address {
				t.Errorf("%+v, want %q", st, c.want)
			}
			sink.Mu.Lock()
			defer sink.Mu.Unlock()
			if first := sink.statuses[0]; first.Origin != address || first.Err != nil || first.Connected {
				t.Errorf("before it failed: %+v", first)
			}
		})
	}
}
