package fanout

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"xdsrelay/config"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// Frames are found however what is read is cut, and so are messages that have
// not come to their end; padding is none of them.
func TestTollFindsFramesAndMessages(t *testing.T) {
	var wire bytes.Buffer
	wire.WriteString(http2.ClientPreface)
	fr := http2.NewFramer(&wire, nil)
	fr.AllowIllegalWrites = true
	ping := [8]byte{}
	for _, err := range []error{
		fr.WriteSettings(),
		fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte("any"), EndHeaders: true}),
		fr.WriteData(1, false, []byte("\x00\x00\x00\x00\x03one\x00\x00\x00\x00\x00")),     // two messages
		fr.WriteData(3, false, []byte("\x00\x00\x00\x00\x05ab")),                          // three bytes are missing
		fr.WriteData(5, false, []byte("\x00\x00")),                                        // of its prefix as well
		fr.WriteDataPadded(7, false, []byte("\x00\x00\x00\x00\x02ok"), make([]byte, 200)), // all of it
		fr.WriteDataPadded(9, false, []byte("\x00\x00\x00\x00\x09half"), make([]byte, 9)),
		fr.WriteData(11, true, []byte("\x00\x00\x00\x00\x09half")), // nobody waits for it
		fr.WriteData(13, false, []byte("\x00\x00\x00\x00\x09half")),
		fr.WriteRSTStream(13, http2.ErrCodeCancel),
		fr.WriteData(15, false, []byte("\x01\x00\x00\x00\x04h")),
		fr.WriteData(15, false, []byte("alf")),
		fr.WriteData(17, false, nil),
		fr.WriteData(17, false, []byte("\x00\x00\x00\x00\x09half")),
		fr.WritePing(false, ping),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 200 {
		left := wire.Bytes()
		c := &toll{left: tollBurst, greeted: true}
		for n := uint32(1); n < 17; n += 2 { // 17 is not open
			c.parts.opens(n, nil)
		}
		seen := 0
		c.framer = framer{skip: len(http2.ClientPreface), body: c.parts.body, seen: func(h http2.FrameHeader) { seen++; c.frame(h) }}
		for len(left) > 0 {
			n := 1 + rand.IntN(min(len(left), 40))
			c.take(left[:n])
			left = left[n:]
		}
		_, open, held := c.parts.late(time.Now(), time.Hour)
		slices.Sort(open)
		if want := []uint32{3, 5, 9}; seen != 15 || !slices.Equal(open, want) || held != 2+4 {
			t.Fatalf("%d frames; open %v with %d bytes, want %v", seen, open, held, want)
		}
		if want := int64(tollBurst - tollStream - 14); c.left != want {
			t.Fatalf("%d left, want %d", c.left, want)
		}
	}
}

// Who says too much is read slowly, at the rate there is, for as long as it goes
// on, and is not cut. Responses and time pay.
func TestP16_WhoSaysTooMuchIsReadSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		s := NewServer(Options{Metrics: newMeters(t), Log: slog.New(slog.DiscardHandler)})
		below := &conn{Conn: server, in: &listener{gate: &Gate{}}}
		c := newToll(s, below, below, tollBurst)
		go func() {
			var all bytes.Buffer
			all.WriteString(http2.ClientPreface)
			fr := http2.NewFramer(&all, nil)
			for range 1000 {
				_ = fr.WritePing(false, [8]byte{}) // into memory
			}
			_, _ = client.Write(all.Bytes()[:len(http2.ClientPreface)])
			for {
				if _, err := client.Write(all.Bytes()[len(http2.ClientPreface):]); err != nil {
					return
				}
			}
		}()
		frame := make([]byte, 17)
		read := func(n int) (time.Duration, error) {
			began := time.Now()
			for range n {
				if _, err := io.ReadFull(c, frame); err != nil {
					return time.Since(began), err
				}
			}
			return time.Since(began), nil
		}
		if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
			t.Fatal(err)
		}
		if took, err := read(tollBurst); took > 0 || err != nil {
			t.Errorf("what is free took %s: %v", took, err)
		}
		if took, err := read(2 * tollRate); took < 1900*time.Millisecond || took > 2100*time.Millisecond || err != nil {
			t.Errorf("twice what is free in a second took %s: %v", took, err)
		}
		below.earn(1000)
		if took, err := read(1000); took > 100*time.Millisecond || err != nil {
			t.Errorf("what responses pay for took %s: %v", took, err)
		}
		if took, err := read(60 * tollRate); took < 59*time.Second || took > 61*time.Second || err != nil {
			t.Errorf("who goes on for a minute is read for %s: %v", took, err)
		}
		_, _ = client.Close(), c.Close()
	})
}

// Who only answers is not held back, however long its answers are: an ACK of the
// state of the world repeats all names.
func TestP16_LongACKsAreNotTooMuch(t *testing.T) {
	for _, tc := range []struct {
		name          string
		streams, size int
		every         time.Duration
	}{
		{"one stream of 20,000 names", 1, 20_000 * 62, time.Second / 12},
		{"100 streams of 1,000 names", 100, 1_000 * 62, 400 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, server := net.Pipe()
				s := NewServer(Options{Metrics: newMeters(t), Log: slog.New(slog.DiscardHandler)})
				below := &conn{Conn: server, in: &listener{gate: &Gate{}}}
				c := newToll(s, below, below, tollBurst)
				var acks bytes.Buffer
				fr := http2.NewFramer(&acks, nil)
				for i := range tc.streams {
					for left := tc.size; left > 0; left -= 16 << 10 {
						_ = fr.WriteData(uint32(2*i+1), false, bytes.Repeat([]byte{255}, min(left, 16<<10))) // into memory
					}
				}
				go func() {
					defer func() { _ = client.Close() }()
					_, _ = io.WriteString(client, http2.ClientPreface)
					for range time.Minute / tc.every {
						below.written.Add(int64(400 * tc.streams))
						below.earn(int64(tollResponse * tc.streams))
						began := time.Now()
						if _, err := client.Write(acks.Bytes()); err != nil {
							return
						}
						if took := time.Since(began); took > 100*time.Millisecond {
							t.Errorf("held back for %s", took)
						}
						time.Sleep(tc.every)
					}
				}()
				n, err := io.Copy(io.Discard, c)
				want := int64(len(http2.ClientPreface)) + int64(time.Minute/tc.every)*int64(acks.Len())
				if n != want || err != nil {
					t.Errorf("read %d bytes of %d: %v", n, want, err)
				}
				_ = c.Close()
			})
		})
	}
}

// rawStream opens a stream by hand, and sends what is no whole message.
func rawStream(t *testing.T, addr, path string, sent []byte) (*http2.Framer, net.Conn) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	fr := http2.NewFramer(c, c)
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", path}, {":authority", "a"}, {"content-type", "application/grpc"}} {
		_ = enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // into memory
	}
	for _, err := range []error{fr.WriteSettings(), fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true}), fr.WriteData(1, false, sent)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return fr, c
}

// A request that does not come to its end ends its stream: after its time, or
// sooner if it is what keeps most alive. Its connection stays, with all that others
// have on it.
func TestP16_UnfinishedRequestsDisturbNobody(t *testing.T) {
	const ads = "/" + aggregated + "/DeltaAggregatedResources"
	half := append([]byte{0, 0, 1, 0, 0}, make([]byte, 10_000)...)
	for _, tc := range []struct {
		name, path string
		within     time.Duration
		pinned     int64
		reason     telemetry.Reason
	}{
		{"slow", ads, time.Millisecond, 0, telemetry.RequestTime},
		{"large", ads, time.Hour, 9_000, telemetry.LimitPinnedBytes},
		{"of another service", "/grpc.health.v1.Health/Check", time.Millisecond, 0, telemetry.RequestTime},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.SendTimeout, o.Limits.PinnedBytes = 20*time.Millisecond, tc.pinned })
			r.srv.requestTime = tc.within
			addr := r.addr
			if tc.path != ads {
				g := grpc.NewServer(r.srv.ServerOptions(Keepalive{Time: time.Minute, Timeout: time.Minute, MinTime: time.Second})...)
				grpc_health_v1.RegisterHealthServer(g, health.NewServer())
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				done := make(chan struct{})
				go func() { defer close(done); _ = g.Serve(r.srv.Listener(l, &Gate{Key: "another"})) }() // ended by Stop
				defer func() { g.Stop(); <-done }()
				addr = l.Addr().String()
			}
			r.house.group("edge").publish(update(t, xds.ClusterType, "a"))
			neighbour := r.delta(r.dial())
			neighbour.ask(xds.ClusterType)
			neighbour.want("a ")
			fr, conn := rawStream(t, addr, tc.path, half)
			if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
				t.Fatal(err)
			}
			for {
				f, err := fr.ReadFrame()
				if err != nil {
					t.Fatalf("the connection is closed, or the stream does not end: %v", err)
				}
				if h, ok := f.(*http2.HeadersFrame); ok && h.StreamEnded() {
					break
				}
			}
			r.counted(tc.reason, 1)
			if len(r.srv.unfinished.some()) > 0 {
				t.Error("what is over is still counted")
			}
			r.house.group("edge").publish(update(t, xds.ClusterType, "b"))
			neighbour.want("b ")
		})
	}
}

// A connection that was closed in its handshake is not kept.
func TestTollOfAClosedConnection(t *testing.T) {
	r := newRig(t, nil)
	client, server := net.Pipe()
	defer func() { _ = client.Close() }() // nobody uses it
	c := &conn{Conn: server, in: &listener{srv: r.srv, gate: new(Gate)}}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	newToll(r.srv, c, c, tollBurst)
	r.srv.unfinished.mu.Lock()
	defer r.srv.unfinished.mu.Unlock()
	if n := len(r.srv.unfinished.conns); n > 0 {
		t.Errorf("%d connections are kept", n)
	}
}

// spent is what requests of the only stream's connection cost more than responses paid. Of
// what is read, only the frames are counted by the connection's reader.
func (r *rig) spent() int64 {
	r.srv.mu.Lock()
	defer r.srv.mu.Unlock()
	for _, st := range r.srv.streams {
		return -st.conn.toll.Load().credit.Load()
	}
	return 0
}

// What a client says without having been asked costs, and what answers a response
// does not: nonces of other streams are no answers.
func TestP13_NoncesOfOthersCost(t *testing.T) {
	r := newRig(t, nil)
	g := r.house.group("edge")
	g.publish(update(t, xds.ClusterType, "a"))
	c := r.delta(r.dial())
	c.ask(xds.ClusterType)
	got := c.want("a ")
	r.eventually(func() bool { return r.spent() == tollRequest-tollResponse }) // it is counted once it is answered
	for i := range 10 {
		c.must(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: got.TypeUrl, ResponseNonce: fmt.Sprint("another's-", i)})
	}
	r.eventually(func() bool { return r.spent() == 11*tollRequest-tollResponse })
	g.publish(update(t, xds.ClusterType, "b"))
	c.want("b ") // and answers, which is seen before it asks for more
	g.publish(update(t, xds.ListenerType, "l"))
	c.ask(xds.ListenerType)
	c.want("l ")
	r.eventually(func() bool { return r.spent() == 12*tollRequest-3*tollResponse })
}

// What stays unanswered costs as well.
func TestP6_AskingForWhatIsNotGivenCosts(t *testing.T) {
	r := newRig(t, nil)
	r.addr = r.listen(&Gate{Key: "downstream", Secrets: config.SecretsMTLS})
	r.house.group("edge").publish(update(t, xds.ClusterType, "a"))
	c := r.delta(r.dial())
	c.ask(xds.ClusterType)
	c.want("a ")
	r.eventually(func() bool { return r.spent() == tollRequest-tollResponse }) // it is counted once it is answered
	for range 10 {
		c.must(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(xds.SecretType), ResourceNamesSubscribe: []string{"s"}})
	}
	r.eventually(func() bool { return r.spent() == 11*tollRequest-tollResponse })
}
