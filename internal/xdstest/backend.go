package xdstest

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"
)

// HTTPBackend is an HTTP server that answers each request with its name.
type HTTPBackend struct {
	Name string
	Port int
}

// StartHTTPBackend starts a backend that runs until the end of the test.
func StartHTTPBackend(t testing.TB, name string) *HTTPBackend {
	t.Helper()
	return startBackend(t, name, nil)
}

// StartHTTPSBackend starts a backend that speaks TLS.
func StartHTTPSBackend(t testing.TB, name string, config *tls.Config) *HTTPBackend {
	t.Helper()
	return startBackend(t, name, config)
}

func startBackend(t testing.TB, name string, config *tls.Config) *HTTPBackend {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if config != nil {
		l = tls.NewListener(l, config)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, name) // the client may be gone
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l) // ended by Close
	}()
	t.Cleanup(func() {
		_ = s.Close() // it has nothing to flush
		<-done
	})
	return &HTTPBackend{Name: name, Port: port}
}
