package upstream

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"

	"xdsrelay/internal/upstream/adsclient"
	"xdsrelay/internal/upstream/connections"
	"xdsrelay/internal/upstream/upstreamtest"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// spoiler is a buffer pool that overwrites each freed buffer at once, and counts them.
type spoiler struct{ freed atomic.Int64 }

func (*spoiler) Get(n int) *[]byte {
	b := make([]byte, n)
	return &b
}

func (s *spoiler) Put(b *[]byte) {
	for i := range *b {
		(*b)[i] = 0xff
	}
	s.freed.Add(1)
}

// spoiled is a stream whose messages are in buffers of a spoiler.
type spoiled struct {
	grpc.ClientStream
	by *spoiler
}

func (s *spoiled) RecvMsg(m any) error {
	if err := s.ClientStream.RecvMsg(m); err != nil {
		return err
	}
	b := m.(*mem.Buffer)
	own := slices.Clone((*b).ReadOnlyData())
	(*b).Free()
	*b = mem.NewBuffer(&own, s.by) // pooled if it is over 1 KB
	return nil
}

// spoil makes the relay receive into buffers that are overwritten once freed. The relay must not
// have opened any stream.
func (r *relay) spoil() *spoiler {
	s := new(spoiler)
	r.reconnect(func(o *connections.Options) {
		o.Extra = append(o.Extra, grpc.WithStreamInterceptor(func(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			cs, err := open(ctx, d, cc, method, opts...)
			if err != nil {
				return nil, err
			}
			return &spoiled{cs, s}, nil
		}))
	})
	return s
}

// allOf describes everything that a snapshot holds, except what differs in each run, such as times.
func allOf(s *snapshot.Snapshot) string {
	var out strings.Builder
	fmt.Fprintf(&out, "version %s, %d absent\n", s.Version, s.AbsentNames())
	for r := range s.Resources {
		fmt.Fprintf(&out, "%s %v %s %s %q %x\n", r.Name, r.Aliases, r.OriginVersion, r.TTL(), r.Follows, r.Any())
	}
	s.Errors(&snapshot.Subscription{Wildcard: true}, func(e *xds.ResourceError) bool {
		fmt.Fprintf(&out, "%s %x\n", e.Name, e.Wire())
		return true
	})
	return out.String()
}

// A response's buffer is reused once the response is applied. Nothing kept or sent later may point
// into it: names, versions, bodies, aliases, errors and removals.
func TestP18_TakenIsCopied(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		f := startFake(t)
		r := newRelay(t, v, Options{}, f.address)
		spoil := r.spoil()
		r.launch()
		want := snapshot.TypeInterest{Type: cds, Wildcard: true}
		_, sink := r.stream(want)
		s := f.next()
		s.request()

		wide := func(i int) string { return fmt.Sprintf("cluster-%02d-%s", i, strings.Repeat("x", 60)) }
		one, two := resp{Type: cds, Version: "set-one", Errors: map[string]codes.Code{"failed": codes.Internal}}, resp{Type: cds, Version: "set-two"}
		if v == xds.SotW {
			two.Errors = one.Errors
		}
		for i := range 40 {
			x := res{Name: wide(i), Content: "first", Version: fmt.Sprint("one-", i), Wrap: i%2 == 0, TTL: time.Duration(i/30) * time.Hour}
			if x.Wrap || v == xds.Delta {
				x.Aliases = []string{fmt.Sprint("alias-", i)}
			}
			one.Resources = append(one.Resources, x)
			if i < 20 {
				x.Content, x.Version = "second", fmt.Sprint("two-", i)
			} else if v == xds.Delta {
				continue
			}
			if i < 35 {
				two.Resources = append(two.Resources, x)
			}
		}
		if v == xds.Delta {
			two.Removed = []string{wide(35), wide(36), wide(37), wide(38), wide(39)}
		}
		refused := resp{Type: cds, Version: "set-three", Resources: []res{one.Resources[7], one.Resources[7]}}
		refused.Resources = append(refused.Resources, one.Resources[8:]...)
		// Both are sent together, so that one can be read while the other is applied.
		s.send(one)
		s.send(two)
		took, no := "CDS nonce 2", "CDS nonce 3 NACK"
		if v == xds.SotW {
			took, no = "CDS [] version set-two nonce 2", "CDS [] version set-two nonce 3 NACK"
		}
		for s.request() != took { // the ACK of the first may be merged into it
		}
		s.send(refused)
		s.got(no)
		if freed := spoil.freed.Load(); freed != 2 {
			t.Errorf("%d buffers are reused, want 2", freed)
		}

		pure := upstreamtest.NewSink() // the same responses in buffers that are never reused
		c := adsclient.New(v, adsclient.Options{Newest: pure.Newest, LastVersions: make(adsclient.LastVersions), MaxRequestBytes: 4 << 20})
		c.SetInterest(pure.Want(want), nil)
		c.NextRequest(time.Now())
		for i, p := range []resp{one, two} {
			now := time.Now()
			r, fault := xds.ParseResponse(v, p.Encode(t, v, fmt.Sprint(i)))
			d, err := c.Receive(r, fault, now)
			if err != nil || !d.Accept {
				t.Fatalf("response %d: %+v, %v", i, d, err)
			}
			u, _ := adsclient.BuildUpdate(v, d, r, pure.Newest(cds), now)
			if _, err := pure.Update(t.Context(), u); err != nil {
				t.Fatal(err)
			}
			c.Applied(r)
		}
		got, is := allOf(sink.Newest(cds)), allOf(pure.Newest(cds))
		if got != is {
			t.Errorf("held\n%s\nwant\n%s", got, is)
		}
		for _, part := range []string{"failed", wide(34), "alias-34", "1h0m0s", "version set-two"} {
			if !strings.Contains(is, part) {
				t.Errorf("%s is missing from the compared text:\n%s", part, is)
			}
		}
	})
}
