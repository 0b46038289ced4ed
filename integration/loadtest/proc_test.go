//go:build linux

package loadtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"
	"unsafe"

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
	diagInfo         = 2  // INET_DIAG_INFO
	diagMemory       = 7  // INET_DIAG_SKMEMINFO
	diagRequestBytes = 56 // struct inet_diag_req_v2
	diagAnswerBytes  = 72 // struct inet_diag_msg
	diagCookie       = 44 // its field that identifies a socket
)

// kernelBytes is the memory that the kernel holds for the IPv4 TCP sockets of a local port: unread,
// unsent and reserved.
func kernelBytes(addr string) (total int64, err error) {
	err = sockets(addr, diagMemory, func(_ uint64, b []byte) {
		field := func(i int) int64 { return int64(binary.NativeEndian.Uint32(b[4*i:])) }
		const received, ahead, queued = 0, 4, 5
		total += field(received) + field(ahead) + field(queued)
	})
	return total, err
}

// traffic is what went through the TCP sockets of a server's port so far, in both directions, in bytes
// by socket.
type traffic map[uint64]int64

// trafficAt reads the traffic of servers.
func trafficAt(t testing.TB, addrs ...string) traffic {
	t.Helper()
	out := make(traffic)
	for _, addr := range addrs {
		err := sockets(addr, diagInfo, func(socket uint64, b []byte) {
			const sent, received = unsafe.Offsetof(unix.TCPInfo{}.Bytes_acked), unsafe.Offsetof(unix.TCPInfo{}.Bytes_received)
			out[socket] = int64(binary.NativeEndian.Uint64(b[sent:]) + binary.NativeEndian.Uint64(b[received:]))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// since is the sum of the traffic since an earlier one, without sockets that were closed meanwhile.
func (now traffic) since(before traffic) (sum float64) {
	for socket, bytes := range now {
		sum += float64(bytes - before[socket])
	}
	return sum
}

// sockets passes an attribute of each established IPv4 TCP socket of a local port to f.
func sockets(addr string, attribute int, f func(socket uint64, value []byte)) error {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return fmt.Errorf("sock_diag: %w", err)
	}
	defer unix.Close(fd)
	order := binary.NativeEndian
	var req []byte
	req = order.AppendUint32(req, unix.NLMSG_HDRLEN+diagRequestBytes)
	req = order.AppendUint16(req, sockDiagByFamily)
	req = order.AppendUint16(req, unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	req = append(req, make([]byte, 8)...) // sequence, port
	req = append(req, unix.AF_INET, unix.IPPROTO_TCP, 1<<(attribute-1), 0)
	req = order.AppendUint32(req, 1<<unix.BPF_TCP_ESTABLISHED)
	req = binary.BigEndian.AppendUint16(req, at.Port())
	req = append(req, make([]byte, unix.NLMSG_HDRLEN+diagRequestBytes-len(req))...)
	if err := unix.Sendto(fd, req, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("sock_diag: %w", err)
	}
	buf := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return fmt.Errorf("sock_diag: %w", err)
		}
		for b := buf[:n]; len(b) >= unix.NLMSG_HDRLEN; {
			size := int(order.Uint32(b))
			if size < unix.NLMSG_HDRLEN || size > len(b) {
				return errors.New("sock_diag: a message is cut off")
			}
			switch order.Uint16(b[4:]) {
			case unix.NLMSG_DONE:
				return nil
			case unix.NLMSG_ERROR:
				return fmt.Errorf("sock_diag: %w", unix.Errno(-int32(order.Uint32(b[unix.NLMSG_HDRLEN:]))))
			}
			if b := b[unix.NLMSG_HDRLEN:size]; len(b) >= diagAnswerBytes {
				f(order.Uint64(b[diagCookie:]), find(b[diagAnswerBytes:], attribute))
			}
			b = b[min((size+3)&^3, len(b)):]
		}
	}
}

// find returns the value of an attribute. The kernel sends the one that was asked for.
func find(b []byte, attribute int) []byte {
	for order := binary.NativeEndian; len(b) >= 4; {
		size := int(order.Uint16(b))
		if size < 4 || size > len(b) {
			break
		}
		if int(order.Uint16(b[2:])) == attribute {
			return b[4:size]
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return make([]byte, unix.SizeofTCPInfo) // of a socket that is being closed
}
