package session

import (
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"xdsrelay/internal/xds"
)

// acknowledging returns a function by which a client in step acknowledges a response once
// more: from the wire to the session's outcome, without the stream around it.
func acknowledging(t testing.TB, v xds.Variant) func() {
	w := newSessionFixture(t, xds.ClusterType, v)
	w.wild("a", "b")
	w.sub()
	w.want("a b")
	w.ack()
	url, nonce := protowire.Number(4), protowire.Number(5)
	if v == xds.Delta {
		url, nonce = 2, 6
	}
	wire := protowire.AppendString(protowire.AppendTag(nil, url, protowire.BytesType), string(xds.ClusterType))
	wire = protowire.AppendString(protowire.AppendTag(wire, nonce, protowire.BytesType), "01234567-1")
	var req xds.Request
	space, frame := make([]pendingACK, 1), new(Manifest)
	return func() {
		w.s.inFlight.responses = append(space[:0], pendingACK{seq: w.seq, at: w.Now, manifest: frame})
		if err := req.Scan(v, wire, 0); err != nil {
			t.Fatal(err)
		}
		want, _ := w.s.Subscribe(&req)
		if out := w.s.Request(&req, want, w.seq); out.Answer != Acked {
			t.Fatalf("verdict %v", out.Answer)
		}
	}
}

// An ACK allocates nothing in either variant.
func TestACKAllocatesNothing(t *testing.T) {
	for _, v := range variants {
		if n := testing.AllocsPerRun(100, acknowledging(t, v)); n != 0 {
			t.Errorf("%v: %v allocations", v, n)
		}
	}
}

// Planning a change that many clients get alike allocates nothing.
func TestNextAllocatesNothing(t *testing.T) {
	for _, v := range variants {
		w := newSessionFixture(t, xds.ClusterType, v)
		w.wild("a", "b")
		w.sub()
		w.want("a b")
		w.ack()
		w.wild("a=2")
		m := w.moment()
		n := testing.AllocsPerRun(100, func() {
			if p := w.s.Next(w.Cur, m); !p.Sends() {
				t.Fatal("nothing to send")
			}
		})
		if n != 0 {
			t.Errorf("%v: %v allocations", v, n)
		}
	}
}

func BenchmarkACK(b *testing.B) {
	for _, v := range variants {
		b.Run(v.String(), func(b *testing.B) {
			acknowledge := acknowledging(b, v)
			b.ReportAllocs()
			for b.Loop() {
				acknowledge()
			}
		})
	}
}
