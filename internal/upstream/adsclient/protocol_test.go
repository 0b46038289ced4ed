package adsclient

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"

	"xdsrelay/internal/upstream/upstreamtest"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

const (
	cds = xds.ClusterType
	eds = xds.EndpointType
	rds = xds.RouteType
	odd = xds.TypeURL("type.googleapis.com/google.protobuf.StringValue")
)

// protocolFixture drives a Conversation without any I/O.
type protocolFixture struct {
	t            *testing.T
	v            xds.Variant
	sink         *upstreamtest.Sink
	conversation Conversation
	lastVersions LastVersions
	origin       string
	max          int
	nodeOnce     bool // the origin gets the node once per stream
	now          time.Time
	nonce        int
	interest     *snapshot.Interest // the newest
	again        Resubscriptions    // since the stream took the interest last

	beforeApplied func() // nil: nothing happens
}

func newProtocolFixture(t *testing.T, v xds.Variant) *protocolFixture {
	r := &protocolFixture{t: t, v: v, sink: upstreamtest.NewSink(), lastVersions: make(LastVersions), origin: "one", max: 4 << 20, now: time.Unix(1000, 0)}
	r.connect()
	return r
}

// connect begins a new stream after one that ended.
func (r *protocolFixture) connect() { r.begin() }

// reopen begins a new stream after the relay ended the last one itself.
func (r *protocolFixture) reopen() { r.begin() }

func (r *protocolFixture) begin() {
	r.again = make(Resubscriptions)
	r.nonce = 0
	node, _ := proto.Marshal(&corev3.Node{Id: "n"})
	r.conversation = New(r.v, Options{Domain: r.origin, Node: node, Newest: r.sink.Newest, LastVersions: r.lastVersions, MaxRequestBytes: r.max, SetNodeOnFirstMessageOnly: r.nodeOnce,
		NACKDelay: func(repeats int) time.Duration { return min(time.Second<<min(repeats-1, 10), 30*time.Second) }, MinNACKDelay: time.Second})
	if r.interest != nil && !r.passInterest() {
		r.t.Fatal("a new stream cannot carry the interest")
	}
}

// set stores an interest that the stream has not taken yet.
func (r *protocolFixture) set(types ...snapshot.TypeInterest) {
	i := r.sink.Want(types...)
	r.again.Note(r.interest, i)
	r.interest = i
}

// passInterest gives the stream the newest interest, and reports whether it can go on with it.
func (r *protocolFixture) passInterest() bool {
	again := r.again
	r.again = make(Resubscriptions)
	return r.conversation.SetInterest(r.interest, again)
}

// want sets the interest, and reports whether the stream can go on with it.
func (r *protocolFixture) want(types ...snapshot.TypeInterest) bool {
	r.set(types...)
	return r.passInterest()
}

func (r *protocolFixture) next() *Request { return r.conversation.NextRequest(r.now) }

// sent takes all due requests and compares them with the expected ones.
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

func (r *Request) bytes() []byte { return slices.Concat(r.Message...) }

// respond makes the conversation receive a response, with nonces 1, 2, 3.
func (r *protocolFixture) respond(p resp) (Decision, Counts) {
	r.t.Helper()
	r.nonce++
	v, n, err := r.raw(p.Encode(r.t, r.v, fmt.Sprint(r.nonce)))
	if err != nil {
		r.t.Fatal(err)
	}
	return v, n
}

// respondUnapplied is respond with something that happens before the response is applied.
func (r *protocolFixture) respondUnapplied(p resp, before func()) {
	r.t.Helper()
	r.beforeApplied = before
	defer func() { r.beforeApplied = nil }()
	r.respond(p)
}

func (r *protocolFixture) raw(msg []byte) (Decision, Counts, error) {
	r.t.Helper()
	response, fault := xds.ParseResponse(r.v, msg)
	v, err := r.conversation.Receive(response, fault, r.now)
	if err != nil || !v.Accept {
		return v, Counts{}, err
	}
	if r.beforeApplied != nil {
		r.beforeApplied()
	}
	u, n := BuildUpdate(r.v, v, response, r.sink.Newest(response.TypeURL), r.now)
	if !v.subscribed.empty() {
		u.Origin = r.origin
		r.apply(u)
	}
	r.conversation.Applied(response)
	return v, n, nil
}

func (r *protocolFixture) apply(u snapshot.Update) {
	if _, err := r.sink.Update(r.t.Context(), u); err != nil {
		r.t.Fatal(err)
	}
}

// pass advances the clock.
func (r *protocolFixture) pass(d time.Duration) { r.now = r.now.Add(d) }

// holds checks the names that are held.
func (r *protocolFixture) holds(typ xds.TypeURL, names ...string) {
	r.t.Helper()
	if got := r.sink.Names(typ); !slices.Equal(got, names) {
		r.t.Fatalf("held of %s: %v, want %v", typ, got, names)
	}
}

// is checks the presence of names.
func (r *protocolFixture) is(typ xds.TypeURL, want snapshot.Presence, names ...string) {
	r.t.Helper()
	for _, n := range names {
		if got := r.sink.Presence(typ, n); got != want {
			r.t.Fatalf("%s is %d, want %d", n, got, want)
		}
	}
}

func (r *protocolFixture) last() snapshot.Update {
	r.t.Helper()
	if len(r.sink.Updates) == 0 {
		r.t.Fatal("no update")
	}
	return r.sink.Updates[len(r.sink.Updates)-1]
}
