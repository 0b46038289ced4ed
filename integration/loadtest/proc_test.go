//go:build linux

package loadtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// monotonic is the time of the machine in nanoseconds.
func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // this clock always exists
	return t.Nano()
}

// cpu is the CPU time of a process, user and system. It uses the process's clock
// (clock_getcpuclockid(3)), because /proc/PID/stat has a resolution of 10 ms.
func cpu(t testing.TB, pid int) time.Duration {
	t.Helper()
	const sched = 2 // CPUCLOCK_SCHED: nanoseconds of its threads on a processor
	var spec unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|sched), &spec); err != nil {
		t.Fatalf("cpu clock of process %d: %v", pid, err)
	}
	return time.Duration(spec.Nano())
}

// Constants of sock_diag(7) that x/sys lacks.
const (
	sockDiagByFamily = 20
	diagMemory       = 7  // INET_DIAG_SKMEMINFO
	diagRequestBytes = 56 // struct inet_diag_req_v2
	diagAnswerBytes  = 72 // struct inet_diag_msg
)

// kernelBytes is the memory that the kernel holds for the IPv4 TCP sockets of a local port: unread,
// unsent and reserved.
func kernelBytes(addr string) (int64, error) {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return 0, err
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return 0, fmt.Errorf("sock_diag: %w", err)
	}
	defer unix.Close(fd)
	order := binary.NativeEndian
	var req []byte
	req = order.AppendUint32(req, unix.NLMSG_HDRLEN+diagRequestBytes)
	req = order.AppendUint16(req, sockDiagByFamily)
	req = order.AppendUint16(req, unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	req = append(req, make([]byte, 8)...) // sequence, port
	req = append(req, unix.AF_INET, unix.IPPROTO_TCP, 1<<(diagMemory-1), 0)
	req = order.AppendUint32(req, 1<<unix.BPF_TCP_ESTABLISHED)
	req = binary.BigEndian.AppendUint16(req, at.Port())
	req = append(req, make([]byte, unix.NLMSG_HDRLEN+diagRequestBytes-len(req))...)
	if err := unix.Sendto(fd, req, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, fmt.Errorf("sock_diag: %w", err)
	}
	total, buf := int64(0), make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return 0, fmt.Errorf("sock_diag: %w", err)
		}
		for b := buf[:n]; len(b) >= unix.NLMSG_HDRLEN; {
			size := int(order.Uint32(b))
			if size < unix.NLMSG_HDRLEN || size > len(b) {
				return 0, errors.New("sock_diag: a message is cut off")
			}
			switch order.Uint16(b[4:]) {
			case unix.NLMSG_DONE:
				return total, nil
			case unix.NLMSG_ERROR:
				return 0, fmt.Errorf("sock_diag: %w", unix.Errno(-int32(order.Uint32(b[unix.NLMSG_HDRLEN:]))))
			}
			total += socketBytes(b[unix.NLMSG_HDRLEN:size])
			b = b[min((size+3)&^3, len(b)):]
		}
	}
}

// socketBytes is the memory of one socket in an answer.
func socketBytes(b []byte) int64 {
	order := binary.NativeEndian
	for b = b[min(diagAnswerBytes, len(b)):]; len(b) >= 4; {
		size := int(order.Uint16(b))
		if size < 4 || size > len(b) {
			return 0
		}
		if order.Uint16(b[2:]) == diagMemory && size >= 4+6*4 {
			field := func(i int) int64 { return int64(order.Uint32(b[4+4*i:])) }
			const received, ahead, queued = 0, 4, 5
			return field(received) + field(ahead) + field(queued)
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return 0
}
