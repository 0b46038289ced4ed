package integration

import (
	"context"
	"errors"
	"net"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"xdsrelay/internal/xdstest"
)

// slowConn reads a number of bytes per second.
type slowConn struct {
	net.Conn
	rate int
	stop <-chan struct{}
}

func (c *slowConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b[:min(len(b), c.rate/20)])
	wait := time.NewTimer(time.Duration(n) * time.Second / time.Duration(c.rate))
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-c.stop:
	}
	return n, err
}

// slowly makes connections that read so many bytes per second. They have small segments and a small
// buffer, as on a network: on loopback the kernel would report the progress in steps of 64 KB.
func slowly(t testing.TB, rate int) grpc.DialOption {
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		failed := raw.Control(func(fd uintptr) {
			err = errors.Join(unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4<<10),
				unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, 1000))
		})
		return errors.Join(failed, err)
	}}
	return grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := d.DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		return &slowConn{conn, rate, t.Context().Done()}, nil
	})
}

// The relay logs how much a slow client read in send_timeout, and how much it has to read.
func TestP16_SlowClientIsMeasured(t *testing.T) {
	t.Parallel()
	o := origin(t, xdstest.Linear)
	large := xdstest.Cluster("large", 1)
	large.AltStatName = strings.Repeat("x", 3<<20)
	o.Put("edge", large)
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			r := serve(t, o.Address, xdstest.Config{"downstream.send_timeout": "2s"})
			conn := xdstest.Dial(t, r.Address, nil, slowly(t, 15_000))
			xdstest.OpenStreamOn(t, conn, methods[v]).Ask(node("slow", "edge"), resource.ClusterType)
			r.WaitMetric(1, "refused_total", "reason", "send_timeout")
			text := regexp.MustCompile(`stream: the client received (\d+) bytes in 2(\.\d+)?s, and (\d+) of the response's 31\d+ bytes in all; the relay requires 65536 bytes within downstream\.send_timeout \(2s\)`)
			var m []string
			xdstest.Eventually(t, "the log says how much the client read", func() error {
				if m = text.FindStringSubmatch(r.Log()); m == nil {
					return errors.New(r.Tail(5))
				}
				return nil
			})
			if n, err := strconv.Atoi(m[1]); err != nil || n < 8_000 || n > 60_000 {
				t.Errorf("the relay measured %s bytes in 2 s of a client that reads 15000 a second", m[1])
			}
		})
	}
}
