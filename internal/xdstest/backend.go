package xdstest

import (
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
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
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
	return &HTTPBackend{Name: name, Port: l.Addr().(*net.TCPAddr).Port}
}
