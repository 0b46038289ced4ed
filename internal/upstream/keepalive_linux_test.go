package upstream

import (
	"context"
	"net"
	"syscall"
	"testing"

	"xdsrelay/internal/xds"
)

// The kernel watches connections to origins. TCP keepalive finds a dead idle path; TCP_USER_TIMEOUT
// finds one with unacknowledged data.
func TestP54_KernelFindsDeadPaths(t *testing.T) {
	const tcpUserTimeout = 0x12
	f := startFake(t)
	conns := make(chan net.Conn, 10)
	r := startRelay(t, xds.Delta, Options{Dialer: func(ctx context.Context, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil {
			conns <- c
		}
		return c, err
	}}, f.address)
	_, sink := r.stream(named(rds, "a"))
	f.next().send(resp{Type: rds, Resources: clusters("a")})
	sink.UntilNames(t, rds, "a")

	raw, err := (<-conns).(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]struct{ level, opt, want int }{
		"SO_KEEPALIVE":     {syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, 1},
		"TCP_KEEPIDLE":     {syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE, 30},
		"TCP_KEEPINTVL":    {syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL, 10},
		"TCP_KEEPCNT":      {syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT, 3},
		"TCP_USER_TIMEOUT": {syscall.IPPROTO_TCP, tcpUserTimeout, 10_000},
	} {
		var got int
		var failed error
		if err := raw.Control(func(fd uintptr) { got, failed = syscall.GetsockoptInt(int(fd), o.level, o.opt) }); err != nil || failed != nil {
			t.Fatal(name, err, failed)
		}
		if got != o.want {
			t.Errorf("%s is %d, want %d", name, got, o.want)
		}
	}
}
