package fanout

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"xdsrelay/internal/fanout/nonce"
	"xdsrelay/internal/fanout/session"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// crowd is one type of a group with many resources, and the clients that want
// all of them, as their sessions and nothing else of them.
type crowd struct {
	t        testing.TB
	typ      xds.Type
	variant  xds.Variant
	builder  *snapshot.Builder
	all      *snapshot.Subscription // interned
	cur      *snapshot.Snapshot
	sessions []*session.Session
	seq      uint64
	ack      []byte // a request on the wire
	now      time.Time
}

func newCrowd(t testing.TB, v xds.Variant, resources int) *crowd {
	c := &crowd{
		t: t, typ: xds.TypeOf(xds.ClusterType), variant: v,
		all: &snapshot.Subscription{Wildcard: true}, now: time.Unix(1e9, 0),
	}
	c.builder = snapshot.NewBuilder(c.typ)
	u := snapshot.Update{Type: c.typ.URL, Origin: "o", Wildcard: true}
	for i := range resources {
		u.Changed = append(u.Changed, c.resource(i, 0))
	}
	c.publish(u)
	url, nonce := protowire.Number(4), protowire.Number(5)
	if v == xds.Delta {
		url, nonce = 2, 6
	}
	c.ack = protowire.AppendString(protowire.AppendTag(nil, url, protowire.BytesType), string(c.typ.URL))
	c.ack = protowire.AppendString(protowire.AppendTag(c.ack, nonce, protowire.BytesType), "01234567-1")
	return c
}

// resource is cluster i in some version.
func (c *crowd) resource(i, version int) *xds.Resource {
	str := func(b []byte, n protowire.Number, s string) []byte {
		return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), s)
	}
	name := fmt.Sprintf("cluster-%06d", i)
	value := str(str(nil, 1, name), 28, fmt.Sprint("stat-", version))
	r, err := xds.NewResource(c.typ, name, str(str(nil, 1, string(c.typ.URL)), 2, string(value)))
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

func (c *crowd) publish(u snapshot.Update) {
	c.builder.Apply(u)
	gen := uint64(1)
	if c.cur != nil {
		gen = c.cur.StateNumber + 1
	}
	c.cur, _ = c.builder.Snapshot(c.cur, gen)
}

// change has the origin change one cluster.
func (c *crowd) change(version int) {
	c.publish(snapshot.Update{Type: c.typ.URL, Origin: "o", Wildcard: true, Changed: []*xds.Resource{c.resource(0, version)}})
}

// join adds a session and brings it in step.
func (c *crowd) join() {
	s := session.New(&c.typ, xds.ResourceFormat{Variant: c.variant}, maxResponse)
	s.Request(&xds.Request{}, c.all, 0)
	c.sessions = append(c.sessions, s)
	c.step(s)
}

// step brings a session in step with what is newest: the response is sent, and
// its ACK comes.
func (c *crowd) step(s *session.Session) {
	p := s.Next(c.cur, session.Moment{Now: c.now, AckTimeout: ackTimeout})
	f := framesOf(p.To).frame(nil, &p, "id")
	if f.Empty() {
		c.t.Fatal("there is nothing to send")
	}
	c.seq++
	s.Sent(&p, f.Manifest, c.seq, c.now)
	c.seq += uint64(max(1, len(f.Parts)) - 1) // the ACK of the last part is that of all
	c.answer(s, &xds.Request{})
}

// answer has the ACK of the newest response handled as a receiver does.
func (c *crowd) answer(s *session.Session, r *xds.Request) {
	if err := r.Scan(c.variant, c.ack, 0); err != nil {
		c.t.Fatal(err)
	}
	want, _ := s.Subscribe(r)
	if out := s.Request(r, want, c.seq); out.Answer != session.Acked {
		c.t.Fatalf("verdict %v", out.Answer)
	}
}

// weigh returns what a session in step holds on average, in bytes: what is
// freed when all of them go, while the newest snapshot and its frames stay.
func (c *crowd) weigh(sessions int) float64 {
	for range sessions {
		c.join()
	}
	// After a change: an older snapshot that a session keeps alive counts.
	c.change(1)
	for _, s := range c.sessions {
		c.step(s)
	}
	with := inUse()
	c.sessions = nil
	without := inUse()
	runtime.KeepAlive(c)
	return float64(int64(with)-int64(without)) / float64(sessions)
}

// inUse is what is in use after all garbage is gone.
func inUse() uint64 {
	runtime.GC()
	runtime.GC() // what pools held back
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A session in step with its group points to a snapshot and holds no names.
func TestSessionMemoryDoesNotGrowWithResources(t *testing.T) {
	const sessions, most = 2000, 1024
	for _, v := range variants {
		few := newCrowd(t, v, 10).weigh(sessions)
		many := newCrowd(t, v, 10_000).weigh(sessions)
		t.Logf("%v: %.0f and %.0f bytes a session", v, few, many)
		if many > few+64 || many > most {
			t.Errorf("%v: %.0f bytes a session with 10 resources, %.0f with 10,000", v, few, many)
		}
	}
}

// B/session must be the same whatever the number of resources.
func BenchmarkSessionMemory(b *testing.B) {
	for _, v := range variants {
		for _, resources := range []int{10, 1000, 100_000} {
			b.Run(fmt.Sprintf("%v/resources=%d", v, resources), func(b *testing.B) {
				sum := 0.0
				for b.Loop() {
					b.StopTimer()
					c := newCrowd(b, v, resources)
					b.StartTimer()
					sum += c.weigh(20_000)
				}
				b.ReportMetric(sum/float64(b.N), "B/session")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// The cost of one more client for a change that others need alike: from a look at the State to the
// ACK, without transport.
func BenchmarkStep(b *testing.B) {
	for _, v := range variants {
		for _, resources := range []int{10, 10_000} {
			b.Run(fmt.Sprintf("%v/resources=%d", v, resources), func(b *testing.B) {
				c := newCrowd(b, v, resources)
				const clients = 1000
				for range clients {
					c.join()
				}
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					s := c.sessions[i%clients]
					if i%clients == 0 {
						b.StopTimer()
						c.change(i + 1)
						c.step(s) // the first one makes the frame
						b.StartTimer()
						continue
					}
					c.step(s)
				}
			})
		}
	}
}

// What one send allocates on the way to the transport, until the buffers are returned. The body is
// shared, whatever its size.
func BenchmarkSend(b *testing.B) {
	for _, size := range []int{1_000, 100_000} {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) {
			body := make([]byte, size)
			st := &stream{nonces: nonce.New(instance, 1)}
			c := newCodec()
			b.ReportAllocs()
			for b.Loop() {
				var buf [32]byte
				nonce := st.nonces.Append(buf[:0], st.nonces.Reserve(1))
				out := newOutgoing(st, body, nonce)
				out.seq = st.run.send()
				message, err := c.Marshal(out)
				if err != nil {
					b.Fatal(err)
				}
				message.Free()
				if st.run.sending() {
					b.Fatal("nothing told that the message has left")
				}
			}
		})
	}
}
