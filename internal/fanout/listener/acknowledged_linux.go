package listener

import (
	"net"

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
