//go:build linux

package listener

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"xdsrelay/config"
	"xdsrelay/internal/xdstest"
)

// The kernel takes little for a client that does not read, whatever is written
// to it: not what its buffers could grow to. (P16 is about others; what many of
// them hold, the machine has not got for the others.)
func TestP16_LittleIsUnsent(t *testing.T) {
	server := connected(t, 0)
	err := server.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	// In pieces, as the transport writes.
	wrote := 0
	for piece := make([]byte, 128<<10); err == nil; {
		var n int
		n, err = server.Write(piece)
		wrote += n
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	if n := server.(*Conn).Written(); n != int64(wrote) {
		t.Errorf("the kernel took %d bytes, and %d are counted: who takes something would look as if it did not", wrote, n)
	}
	raw := xdstest.Must(server.(*Conn).Conn.(syscall.Conn).SyscallConn())(t)
	var limit, waiting int
	var failed error
	if err := raw.Control(func(fd uintptr) {
		var one, two error
		limit, one = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT)
		waiting, two = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
		failed = errors.Join(one, two)
	}); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	if limit != notSent {
		t.Errorf("the socket's limit is %d, want %d", limit, notSent)
	}
	// One more piece of the kernel's goes over the limit: of 64 KB at most.
	if most := notSent + 64<<10; waiting == 0 || waiting > most {
		t.Errorf("%d bytes wait to be sent to a client that does not read, want %d at most", waiting, most)
	}
}

// The kernel closes a connection whose data nobody acknowledges, but not before send_timeout.
func TestUserTimeout(t *testing.T) {
	for sendTimeout, want := range map[time.Duration]time.Duration{time.Minute: leastUserTimeout, time.Hour: 2 * time.Hour} {
		server := connected(t, sendTimeout)
		raw := xdstest.Must(server.(*Conn).Conn.(syscall.Conn).SyscallConn())(t)
		var ms int
		var failed error
		if err := raw.Control(func(fd uintptr) { ms, failed = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT) }); err != nil || failed != nil {
			t.Fatal(err, failed)
		}
		if got := time.Duration(ms) * time.Millisecond; got != want {
			t.Errorf("send_timeout %v: the user timeout is %v, want %v", sendTimeout, got, want)
		}
	}
}

// connected returns a connection that a Listener accepted and whose client does not read. It is
// closed with the test.
func connected(t *testing.T, sendTimeout time.Duration) net.Conn {
	t.Helper()
	plain := xdstest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	l := New(plain, &Policy{Key: "downstream"}, NewAdmission(config.Limits{}), nil, sendTimeout)
	t.Cleanup(func() { _ = l.Close() })
	client := xdstest.Must(net.Dial("tcp", l.Addr().String()))(t)
	t.Cleanup(func() { _ = client.Close() })
	server := xdstest.Must(l.Accept())(t)
	t.Cleanup(func() { _ = server.Close() })
	return server
}
