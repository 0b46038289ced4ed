package upstream

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"

	"xdsrelay/internal/xds"
)

const (
	cds = xds.ClusterType
	eds = xds.EndpointType
	rds = xds.RouteType
	odd = xds.TypeURL("type.googleapis.com/google.protobuf.StringValue")
)

// protocolFixture drives a talker without any I/O.
type protocolFixture struct {
	t      *testing.T
	v      xds.Variant
	sink   *testSink
	talk   talker
	memory memory
	origin string
	max    int
	now    time.Time
	nonce  int
	cell   cell
}

func newProtocolFixture(t *testing.T, v xds.Variant) *protocolFixture {
	r := &protocolFixture{t: t, v: v, sink: newTestSink(), memory: make(memory), origin: "one", max: 4 << 20, now: time.Unix(1000, 0), cell: newCell()}
	r.connect()
	return r
}

// connect begins a new stream after one that ended.
func (r *protocolFixture) connect() { r.begin() }

// reopen begins a new stream instead of one that the relay ended itself.
func (r *protocolFixture) reopen() { r.begin() }

func (r *protocolFixture) begin() {
	r.cell.rest()
	r.nonce = 0
	node, _ := proto.Marshal(&corev3.Node{Id: "n"})
	o := talkOptions{origin: r.origin, node: node, held: r.sink.Held, memory: r.memory, maxRequest: r.max,
		damping: Backoff{Base: time.Second, Max: 30 * time.Second}, random: func(d time.Duration) time.Duration { return d }}
	if r.v == xds.Delta {
		r.talk = newDelta(o)
	} else {
		r.talk = newSotW(o)
	}
	i, lapsed := r.cell.take()
	if i != nil && !r.talk.want(i, lapsed) {
		r.t.Fatal("a new stream cannot carry the interest")
	}
}

// set is an interest that nobody takes yet.
func (r *protocolFixture) set(types ...xds.TypeInterest) { r.cell.set(r.sink.Want(types...)) }

// want reports whether the stream can go on with the interest.
func (r *protocolFixture) want(types ...xds.TypeInterest) bool {
	r.set(types...)
	return r.talk.want(r.cell.take())
}

func (r *protocolFixture) next() *request { return r.talk.next(r.now) }

// sent writes all that is due and checks it against what is expected.
func (r *protocolFixture) sent(want ...string) {
	r.t.Helper()
	var got []string
	for req := r.next(); req != nil; req = r.next() {
		got = append(got, show(r.t, r.v, req.bytes()))
	}
	if !slices.Equal(got, want) {
		r.t.Fatalf("sent\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func (r *request) bytes() []byte { return slices.Concat(r.head, r.tail) }

// respond has the talker take a response, with nonces 1, 2, 3.
func (r *protocolFixture) respond(p resp) (verdict, tally) {
	r.t.Helper()
	r.nonce++
	v, n, err := r.raw(p.Encode(r.t, r.v, fmt.Sprint(r.nonce)))
	if err != nil {
		r.t.Fatal(err)
	}
	return v, n
}

func (r *protocolFixture) raw(msg []byte) (verdict, tally, error) {
	r.t.Helper()
	response, fault := xds.ParseResponse(r.v, msg)
	v, err := r.talk.received(response, fault, r.now)
	if err != nil || !v.take {
		return v, tally{}, err
	}
	u, n := judge(r.v, v, response, r.sink.Held(response.TypeURL), r.now)
	if !v.asked.empty() {
		u.Origin = r.origin
		r.apply(u)
	}
	r.talk.taken(response)
	return v, n, nil
}

func (r *protocolFixture) apply(u xds.Update) {
	if _, err := r.sink.Update(r.t.Context(), u); err != nil {
		r.t.Fatal(err)
	}
}

// pass lets time go by.
func (r *protocolFixture) pass(d time.Duration) { r.now = r.now.Add(d) }

// holds checks the names that are held.
func (r *protocolFixture) holds(typ xds.TypeURL, names ...string) {
	r.t.Helper()
	if got := r.sink.Names(typ); !slices.Equal(got, names) {
		r.t.Fatalf("held of %s: %v, want %v", typ, got, names)
	}
}

// is checks what is known of names.
func (r *protocolFixture) is(typ xds.TypeURL, want xds.Presence, names ...string) {
	r.t.Helper()
	for _, n := range names {
		if got := r.sink.Presence(typ, n); got != want {
			r.t.Fatalf("%s is %d, want %d", n, got, want)
		}
	}
}

func (r *protocolFixture) last() xds.Update {
	r.t.Helper()
	if len(r.sink.Updates) == 0 {
		r.t.Fatal("no update")
	}
	return r.sink.Updates[len(r.sink.Updates)-1]
}
