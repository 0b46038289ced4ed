package relay

import (
	"net"
	"strconv"
	"testing"

	"xdsrelay/config"
)

// A listener is shown with the configured host: Go shows 0.0.0.0 as [::].
func TestWhere(t *testing.T) {
	if got := listenAddress("127.0.0.1:5", nil); got != "off" {
		t.Error(got)
	}
	for _, host := range []string{"0.0.0.0", "127.0.0.1", "localhost", ""} {
		l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			t.Fatal(err)
		}
		port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
		if got := listenAddress(host+":0", l); got != host+":"+port {
			t.Errorf("%s: %s", host, got)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestSecured(t *testing.T) {
	if got := secured([]config.Listener{{}, {TLS: config.ServerTLS{CertFile: "c"}}, {TLS: config.ServerTLS{CertFile: "c", ClientCAFile: "a"}}}); got != "off,on,mtls" {
		t.Error(got)
	}
}
