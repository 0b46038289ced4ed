package fanout

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// dials are the connections that a client made.
type dials struct {
	mu   sync.Mutex
	made []*dialled
}

type dialled struct {
	net.Conn
	over chan struct{}
	once sync.Once
}

func (d *dialled) Close() error {
	d.once.Do(func() { close(d.over) })
	return d.Conn.Close()
}

func (d *dials) all() []*dialled {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.made)
}

// dialCounting is dialTo with the connections noted.
func (r *rig) dialCounting(addr string, conf *tls.Config) (*grpc.ClientConn, *dials) {
	r.t.Helper()
	d := new(dials)
	creds := insecure.NewCredentials()
	if conf != nil {
		creds = credentials.NewTLS(conf)
	}
	c, err := grpc.NewClient(addr, grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) {
			raw, err := new(net.Dialer).DialContext(ctx, "tcp", to)
			if err != nil {
				return nil, err
			}
			out := &dialled{Conn: raw, over: make(chan struct{})}
			d.mu.Lock()
			defer d.mu.Unlock()
			d.made = append(d.made, out)
			return out, nil
		}))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	return c, d
}

// A client whose stream was ended for its age comes back on another connection, and
// the old one is closed: so what stands before the relays can balance anew.
func TestAgedClientComesBackOnAnotherConnection(t *testing.T) {
	c := newCerts(t)
	for name, conf := range map[string]*tls.Config{"plaintext": nil, "TLS": c.client()} {
		for _, v := range variants {
			t.Run(name+"/"+v.String(), func(t *testing.T) {
				r := newRig(t, func(o *Options) { o.MaxConnectionAge = 20 * time.Millisecond })
				r.house.group("edge").publish(update(t, xds.ClusterType, "a"))
				gate := &Gate{Key: "downstream"}
				if conf != nil {
					gate.TLS = c.server(false)
				}
				conn, d := r.dialCounting(r.listen(gate), conf)
				const n = 4
				for range n {
					p := r.ads(conn, v)
					p.ask(node("n"), xds.ClusterType)
					p.gets(xds.ClusterType)
					if s := p.ends(); s.Code() != codes.Unavailable || !strings.Contains(s.Message(), "max_connection_age") {
						t.Fatal(s)
					}
				}
				made := d.all()
				if len(made) < n {
					t.Errorf("%d streams came by %d connections", n, len(made))
				}
				for _, m := range made[:n] {
					<-m.over // by the client, which has no stream there any more
				}
			})
		}
	}
}

// Of many streams that share a connection each ends at its own time, and by the
// relay's word: that the connection parts cuts none, and none that was just opened.
func TestPartingCutsNoStream(t *testing.T) {
	r := newRig(t, func(o *Options) { o.MaxConnectionAge, o.Limits.StreamsPerConnection = 100*time.Millisecond, 1000 })
	r.house.group("edge").publish(update(t, xds.ClusterType, "a"))
	conn, d := r.dialCounting(r.addr, nil)
	var streams sync.WaitGroup
	opened := 0
	for began := time.Now(); time.Since(began) < time.Second; opened++ {
		p := r.ads(conn, variants[opened%2])
		p.ask(node("n"), xds.ClusterType)
		p.gets(xds.ClusterType) // has the streams be opened at different times
		streams.Go(func() {
			if s := p.ends(); s.Code() != codes.Unavailable || !strings.Contains(s.Message(), "stream: older than max_connection_age") {
				t.Errorf("a stream was ended otherwise: %v", s)
			}
		})
	}
	streams.Wait()
	r.counted(telemetry.Aged, opened)
	made := d.all()
	t.Logf("%d streams by %d connections", opened, len(made))
	// Each carries streams until it parts, and not after that.
	if len(made) < 5 {
		t.Errorf("%d streams of a second came by %d connections", opened, len(made))
	}
	for _, m := range made {
		<-m.over
	}
}

// A connection on which only the health is asked for parts as well.
func TestConnectionOfHealthChecksParts(t *testing.T) {
	r := newRig(t, func(o *Options) { o.MaxConnectionAge = time.Millisecond })
	conn, d := r.dialCounting(r.addr, nil)
	for len(d.all()) < 3 {
		if _, err := grpc_health_v1.NewHealthClient(conn).Check(testContext(t), &grpc_health_v1.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
	}
}

// h2 is a client that does as it likes.
type h2 struct {
	*testing.T
	*http2.Framer
	headers *hpack.Decoder
	next    uint32
}

func (r *rig) h2() *h2 {
	t := r.t.(*testing.T)
	fr, _ := rawStream(t, r.addr, "/"+aggregated+"/DeltaAggregatedResources", nil)
	return &h2{T: t, Framer: fr, headers: hpack.NewDecoder(4096, nil), next: 3}
}

// open opens one more stream.
func (h *h2) open() uint32 {
	h.Helper()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", "/" + aggregated + "/DeltaAggregatedResources"}, {":authority", "a"}, {"content-type", "application/grpc"}} {
		_ = enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // into memory
	}
	id := h.next
	h.next += 2
	if err := h.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true}); err != nil {
		h.Fatal(err)
	}
	return id
}

// heard reads until a stream ends or the connection does (0), and says what GOAWAY
// there was before.
func (h *h2) heard() (ended uint32, said string, away *http2.GoAwayFrame) {
	h.Helper()
	for {
		f, err := h.ReadFrame()
		if errors.Is(err, io.EOF) {
			return 0, "", away
		}
		if err != nil {
			h.Fatal(err)
		}
		switch f := f.(type) {
		case *http2.GoAwayFrame:
			g := *f
			away = &g
		case *http2.HeadersFrame:
			fields, err := h.headers.DecodeFull(f.HeaderBlockFragment())
			if err != nil {
				h.Fatal(err)
			}
			if !f.StreamEnded() {
				continue
			}
			for _, x := range fields {
				if x.Name == "grpc-message" {
					said = x.Value
				}
			}
			return f.StreamID, said, away
		}
	}
}

// A client is told before its stream ends that the connection takes no more, and so
// that those on their way are served. One that opens more all the same is refused;
// others that it has there stay.
func TestGoAwayComesBeforeTheEnd(t *testing.T) {
	r := newRig(t, func(o *Options) { o.MaxConnectionAge = 30 * time.Millisecond })
	r.srv.parting = 0
	h := r.h2()
	r.eventually(func() bool { return r.srv.open() == 1 })
	set := *r.srv.settings()
	set.MaxConnectionAge = 0
	r.srv.Reconfigure(set) // in force for the next stream
	stays := h.open()
	ended, said, away := h.heard()
	if ended != 1 || away == nil || away.LastStreamID != math.MaxInt32 || away.ErrCode != http2.ErrCodeNo || !strings.Contains(said, "max_connection_age") {
		t.Fatalf("stream %d ended with %q, and GOAWAY %v", ended, said, away)
	}
	later := h.open()
	ended, said, away = h.heard()
	if ended != later || away != nil || !strings.Contains(said, "GOAWAY") {
		t.Fatalf("stream %d ended with %q, and GOAWAY %v", ended, said, away)
	}
	r.counted(telemetry.Aged, 2)
	if r.srv.open() != 1 {
		t.Error("the other stream is gone")
	}
	// Once it has no stream, it is closed.
	if err := h.WriteRSTStream(stays, http2.ErrCodeCancel); err != nil {
		t.Fatal(err)
	}
	if ended, _, _ = h.heard(); ended != 0 {
		t.Errorf("stream %d ended", ended)
	}
}

// A stream that was on its way when the connection was told to part is served.
func TestStreamOnItsWayIsServed(t *testing.T) {
	r := newRig(t, func(o *Options) { o.MaxConnectionAge = 30 * time.Millisecond })
	h := r.h2()
	if ended, _, away := h.heard(); ended != 1 || away == nil {
		t.Fatal("did not part")
	}
	set := *r.srv.settings()
	set.MaxConnectionAge = 0
	r.srv.Reconfigure(set)
	h.open()
	r.eventually(func() bool { return r.srv.open() == 1 })
	r.counted(telemetry.Aged, 1)
}

// open is how many streams there are.
func (s *Server) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams)
}

// recorder is a connection that keeps what is written.
type recorder struct {
	net.Conn
	wrote bytes.Buffer
}

func (r *recorder) Write(b []byte) (int, error) { return r.wrote.Write(b) }

// GOAWAY goes between two frames, wherever what is written is cut and whenever it is
// asked for; not before the settings, and not into headers that continue. It goes once.
func TestGoAwayGoesBetweenFrames(t *testing.T) {
	var wire bytes.Buffer
	fr := http2.NewFramer(&wire, nil)
	for i := range uint32(20) {
		id := 2*i + 1
		errs := []error{fr.WriteSettings(), fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte("a"), EndHeaders: i%2 == 0})}
		if i%2 == 1 {
			errs = append(errs, fr.WriteContinuation(id, false, []byte("b")), fr.WriteContinuation(id, true, []byte("b")))
		}
		errs = append(errs, fr.WriteData(id, false, make([]byte, 50)), fr.WriteData(id, true, nil))
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	frames := func(b []byte) (headers []http2.FrameHeader) {
		in := http2.NewFramer(io.Discard, bytes.NewReader(b)) // which knows what may follow what
		for {
			f, err := in.ReadFrame()
			if errors.Is(err, io.EOF) {
				return headers
			}
			if err != nil {
				t.Fatal(err)
			}
			headers = append(headers, f.Header())
		}
	}
	whole := frames(wire.Bytes())
	srv := newRig(t, nil).srv
	places := map[int]bool{}
	for range 2000 {
		out := new(recorder)
		tl := &toll{Conn: out, conn: &conn{in: new(listener)}}
		tl.sent.seen = tl.wrote
		tl.conn.in.srv = srv
		left, asked := wire.Bytes(), rand.IntN(wire.Len()+1)
		for len(left) > 0 {
			if wire.Len()-len(left) >= asked {
				tl.conn.departs.Store(true)
			}
			n := 1 + rand.IntN(min(len(left), 1+rand.IntN(300)))
			if wrote, err := tl.Write(left[:n]); wrote != n || err != nil {
				t.Fatal(wrote, err)
			}
			left = left[n:]
		}
		got := frames(out.wrote.Bytes())
		at := slices.IndexFunc(got, func(h http2.FrameHeader) bool { return h.Type == http2.FrameGoAway })
		if at == 0 {
			t.Fatal("GOAWAY came before the settings")
		}
		if at < 0 {
			at = len(got) // asked for at the end
		} else {
			got = slices.Delete(got, at, at+1)
		}
		places[at] = true
		if len(got) != len(whole) {
			t.Fatalf("%d frames, want %d", len(got), len(whole))
		}
		for i := range got {
			if got[i].Type != whole[i].Type || got[i].Length != whole[i].Length || got[i].StreamID != whole[i].StreamID {
				t.Fatalf("frame %d is %v, want %v", i, got[i], whole[i])
			}
		}
	}
	if len(places) < 50 {
		t.Errorf("GOAWAY was put at %d places", len(places))
	}
}
