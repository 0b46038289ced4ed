package listener

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// acknowledged returns how many bytes the other host has acknowledged, and so received. ok is false
// if c is not a TCP connection, or is closed.
func acknowledged(c net.Conn) (n int64, ok bool) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return 0, false
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return 0, false
	}
	var info *unix.TCPInfo
	control := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	if control != nil || err != nil {
		return 0, false
	}
	return int64(info.Bytes_acked), true
}

// setUserTimeout sets how long sent data may be unacknowledged before the kernel closes c, and how
// long the kernel sends the data again after c was closed.
func setUserTimeout(c net.Conn, d time.Duration) {
	raw, ok := c.(syscall.Conn)
	if !ok {
		return
	}
	if rc, err := raw.SyscallConn(); err == nil {
		// Best effort: without it, the kernel's own times apply.
		_ = rc.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
		})
	}
}
