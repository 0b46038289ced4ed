package upstream

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"xdsrelay/internal/xds"
)

const srds = xds.ScopedType

// pickyOrigin ends each stream with a request that has a forbidden text. It answers the other
// requests that want something new.
type pickyOrigin struct {
	*fakeOrigin

	mu        sync.Mutex
	forbidden []string
	version   int
	open      map[*fakeStream]map[string][]string // the names of each type
	ended     []string                            // the requests for which streams were ended
}

// picky starts a pickyOrigin, which ends with the test.
func (n *inMemory) picky(name string, forbidden ...string) *pickyOrigin {
	p := &pickyOrigin{fakeOrigin: n.origin(name), forbidden: forbidden, open: make(map[*fakeStream]map[string][]string)}
	go func() {
		for {
			select {
			case s := <-p.streams:
				go p.serve(s)
			case <-n.t.Context().Done():
				return
			}
		}
	}()
	return p
}

func (p *pickyOrigin) serve(s *fakeStream) {
	p.mu.Lock()
	p.open[s] = make(map[string][]string)
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.open, s)
	}()
	for {
		select {
		case r := <-s.in:
			if !p.handle(s, r) {
				return
			}
		case <-s.Context().Done():
			return
		}
	}
}

func (p *pickyOrigin) handle(s *fakeStream, r string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.forbidden {
		if strings.Contains(r, f) {
			p.ended = append(p.ended, r)
			s.done <- status.Errorf(codes.InvalidArgument, "no %s here", f)
			return false
		}
	}
	typ, rest, _ := strings.Cut(r, " ")
	_, list, subscribes := strings.Cut(rest, "[")
	list, _, _ = strings.Cut(list, "]")
	names := strings.Fields(list)
	if s.v == xds.Delta {
		if subscribes && !strings.HasPrefix(rest, "+") {
			return true
		}
		names = append(slices.Clone(p.open[s][typ]), names...)
	}
	if subscribes || !strings.Contains(rest, "nonce") {
		if was, known := p.open[s][typ]; known && len(was) == len(names) {
			return true
		}
		p.open[s][typ] = names
		p.send(s, typ)
	}
	return true
}

// send sends the newest version of a type. The caller has the lock.
func (p *pickyOrigin) send(s *fakeStream, typ string) {
	names := slices.DeleteFunc(slices.Clone(p.open[s][typ]), func(n string) bool { return n == "*" || n == "pending" })
	if typ == "CDS" {
		names = []string{"c"}
	}
	var out []res
	for _, name := range names {
		out = append(out, res{Name: name, Content: fmt.Sprint(p.version), Version: fmt.Sprint(p.version), Uncached: strings.HasPrefix(name, "uncached")})
	}
	for url, label := range map[xds.TypeURL]string{eds: "EDS", cds: "CDS", srds: "SRDS", rds: "RDS"} {
		if label == typ {
			s.send(resp{Type: url, Version: fmt.Sprint(p.version), Resources: out})
		}
	}
}

// change sends another version of everything.
func (p *pickyOrigin) change() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.version++
	for s, types := range p.open {
		for typ := range types {
			p.send(s, typ)
		}
	}
	return fmt.Sprint(p.version)
}

// allow lifts the bans.
func (p *pickyOrigin) allow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forbidden = nil
}

func (p *pickyOrigin) endedStreams() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ended)
}

// follows checks that a change reaches the key soon.
func (p *pickyOrigin) follows(t *testing.T, sink *testSink, typ xds.TypeURL, name string) {
	t.Helper()
	version := p.change()
	time.Sleep(100 * time.Millisecond)
	synctest.Wait()
	if got := sink.heldAs(typ, name); got == nil || got.OriginVersion != version && sink.Snapshots[typ].OriginVersion() != version {
		t.Fatalf("%s is %v, want version %s", name, got, version)
	}
}

// An origin ends the stream because of a type that it does not know. Who asked first does not
// matter: clients with other types are served, and the type is the key's problem until no client
// wants it.
func TestP68_UnknownType(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		p, other := n.picky("one", "SRDS"), n.origin("two")
		r := n.relay(v, "one", "two")
		_, another := r.stream(named(eds, "x"))
		key, sink := r.stream(all(srds))
		time.Sleep(5 * time.Second)
		key.SetInterest(sink.Want(all(srds), all(cds)))
		time.Sleep(10 * time.Second)
		p.follows(t, sink, cds, "c")
		p.follows(t, another, eds, "x")
		got := key.Suspended()
		if len(got) != 1 || got[0].Type != srds || len(got[0].Names) > 0 || !strings.Contains(got[0].Err.Error(), "no SRDS here") {
			t.Errorf("suspended: %+v", got)
		}
		sink.Mu.Lock()
		if st := sink.lastStatus(); !st.Connected {
			t.Errorf("status %+v", st)
		}
		for _, st := range sink.statuses {
			if st.Failed {
				t.Errorf("failed: %+v", st)
			}
		}
		changes := len(sink.statuses)
		sink.Mu.Unlock()
		was := p.endedStreams()
		time.Sleep(time.Hour)
		sink.Mu.Lock()
		if n := len(sink.statuses) - changes; n > 0 {
			t.Errorf("the key's stream changed %d times", n)
		}
		sink.Mu.Unlock()
		if n := p.endedStreams() - was; n < 60 || n > 1000 {
			t.Errorf("%d trials in an hour", n)
		}
		if r.client.origins[0].isAway() || len(other.streams) > 0 {
			t.Error("the origin is away, or the other one was asked")
		}
		key.SetInterest(sink.Want(all(cds)))
		time.Sleep(time.Minute)
		was = p.endedStreams()
		time.Sleep(time.Hour)
		if n := p.endedStreams() - was; n > 0 || len(key.Suspended()) > 0 || r.client.origins[0].streams.Load() != 2 {
			t.Errorf("%d trials, suspended %v, %d streams", n, key.Suspended(), r.client.origins[0].streams.Load())
		}
	})
}

// Two streams in a row that the origin ends soon after a request make what it added suspicious.
func TestP68_SuspiciousAfterTwoEnds(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		f := n.origin("one")
		key, _ := n.relay(v, "one").stream(named(rds, "a"))
		for i := range 2 {
			if key.Excluding() {
				t.Errorf("excluded after %d ends", i)
			}
			s := f.opens()
			s.request()
			s.done <- status.Error(codes.Unavailable, "no")
			synctest.Wait()
		}
		if !key.Excluding() {
			t.Error("nothing is excluded")
		}
	})
}

// An origin ends the stream because of two of many names. The names that it answers, and one that
// it leaves pending, return to the key's stream.
func TestP68_RejectedNames(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		p := n.picky("one", "bad1", "bad2")
		r := n.relay(v, "one")
		key, sink := r.stream(named(eds, "a"))
		time.Sleep(time.Second)
		p.follows(t, sink, eds, "a")
		names := []string{"a", "bad1", "bad2", "pending"}
		for i := range 100 {
			names = append(names, fmt.Sprintf("n%02d", i))
		}
		key.SetInterest(sink.Want(named(eds, names...)))
		time.Sleep(20 * time.Second)
		for _, name := range []string{"a", "n00", "n50", "n99"} {
			p.follows(t, sink, eds, name)
		}
		got := key.Suspended()
		if len(got) != 1 || got[0].Count != 2 || !slices.Equal(slices.Sorted(slices.Values(got[0].Names)), []string{"bad1", "bad2"}) {
			t.Errorf("suspended: %+v", got)
		}
		p.mu.Lock()
		for s, types := range p.open {
			if !slices.Contains(types["EDS"], "pending") {
				t.Errorf("stream %p has %v", s, types)
			}
		}
		p.mu.Unlock()
		sink.Mu.Lock()
		changes := len(sink.statuses)
		sink.Mu.Unlock()
		time.Sleep(10 * time.Minute)
		sink.Mu.Lock()
		if n := len(sink.statuses) - changes; n > 0 {
			t.Errorf("the key's stream changed %d times", n)
		}
		sink.Mu.Unlock()

		p.allow()
		time.Sleep(2 * time.Minute)
		p.follows(t, sink, eds, "bad1")
		if got := key.Suspended(); len(got) > 0 || r.client.origins[0].streams.Load() != 1 {
			t.Errorf("suspended: %+v; %d streams", got, r.client.origins[0].streams.Load())
		}
	})
}

// If nothing else is left of a key, and the origin answers no other key, trials count as attempts.
// Once the origin is well, the key follows at once.
func TestP68_P53_NothingElseIsLeft(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		p := n.picky("one", "SRDS")
		r := n.relay(v, "one")
		key, sink := r.stream(all(srds))
		time.Sleep(time.Minute)
		sink.Mu.Lock()
		if st := sink.lastStatus(); !st.Failed || st.Carried.Of(srds).Empty() {
			t.Errorf("status %+v", st)
		}
		sink.Mu.Unlock()
		key.SetInterest(sink.Want(all(srds), named(eds, "a")))
		time.Sleep(5 * time.Second)
		p.follows(t, sink, eds, "a")
		p.allow()
		time.Sleep(time.Minute)
		p.follows(t, sink, eds, "a")
		if got := key.Suspended(); len(got) > 0 {
			t.Errorf("suspended: %+v", got)
		}
	})
}

// If the first keys ask only for a type that the origin does not know, the origin counts as away.
// Keys that come then return soon from the next origin.
func TestP68_P56_FirstKeysRequestAnUnknownType(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		n.picky("one", "SRDS")
		n.picky("two")
		r := n.relay(v, "one", "two")
		for range 5 {
			r.stream(all(srds))
		}
		time.Sleep(10 * time.Second)
		if !r.client.origins[0].isAway() {
			t.Error("the origin is not away")
		}
		_, sink := r.stream(named(eds, "a"))
		time.Sleep(20 * time.Second)
		sink.from(t, eds, addressOf("one"))
		if r.client.origins[0].isAway() {
			t.Error("the origin is away")
		}
		_, sink = r.stream(named(eds, "b"))
		time.Sleep(time.Second)
		sink.from(t, eds, addressOf("one"))
	})
}

// Only a request that adds something makes the end of a stream suspicious. A client that drops
// names does not.
func TestP68_DroppedNamesAreNoRequestWithSuspects(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		f := n.origin("one")
		r := n.relay(v, "one")
		key, sink := r.stream(named(rds, "a", "b", "c", "d"), named(eds, "pending"))
		for _, left := range [][]string{{"a", "b", "c"}, {"a", "b"}, {"a"}} {
			s := f.opens()
			s.request()
			s.request()
			s.send(resp{Type: rds, Version: "1", Resources: clusters("a")})
			time.Sleep(suspectWithin + time.Second)
			key.SetInterest(sink.Want(named(rds, left...), named(eds, "pending")))
			time.Sleep(time.Second)
			s.done <- status.Error(codes.Unavailable, "the end")
		}
		f.opens()
		if key.Excluding() {
			t.Error("a name is excluded")
		}
	})
}

// The end of a trial drops no do_not_cache resources: what it brought returns to the key's stream,
// and the others are that stream's.
func TestP68_P63_TrialsDropNothing(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		p := n.picky("one", "bad")
		r := n.relay(v, "one")
		key, sink := r.stream(named(eds, "uncached-a"))
		time.Sleep(time.Second)
		p.follows(t, sink, eds, "uncached-a")
		key.SetInterest(sink.Want(named(eds, "uncached-a", "uncached-b", "bad")))
		time.Sleep(time.Minute)
		p.follows(t, sink, eds, "uncached-b")
		sink.Mu.Lock()
		defer sink.Mu.Unlock()
		drops := 0
		for _, u := range sink.Updates {
			if u.Ended {
				drops++
			}
		}
		if drops != 1 { // of the two streams that the origin ended, the first one had a response
			t.Errorf("do_not_cache resources were dropped %d times", drops)
		}
	})
}

// A proxy ends all streams while the origin is away. What trials seemed to find meanwhile does not
// delay the key when the origin is back.
func TestP68_P54_TrialsWhileTheOriginIsAway(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		p := n.picky("one", "DS")
		r := n.relay(v, "one")
		var names []string
		for i := range 500 {
			names = append(names, fmt.Sprintf("n%03d", i))
		}
		key, sink := r.stream(all(cds))
		key.SetInterest(sink.Want(all(cds), named(eds, names...)))
		time.Sleep(10 * time.Minute)
		p.allow()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		missing := slices.DeleteFunc(names, func(name string) bool { return sink.heldAs(eds, name) != nil })
		if len(missing) > 0 || sink.heldAs(cds, "c") == nil {
			t.Errorf("2 s after the return %d names are missing", len(missing))
		}
	})
}

// A lost connection is no sign against suspects, and neither is a stream that lived for longer.
func TestP68_OnlyTheOriginsOwnStatusSoonAfterTheRequest(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		f := n.origin("one")
		r := n.relay(v, "one")
		key, sink := r.stream(named(rds, "a"))
		s := f.opens()
		s.request()
		s.send(resp{Type: rds, Version: "1", Resources: clusters("a")})
		s.request()
		key.SetInterest(sink.Want(named(rds, "a"), named(eds, "pending")))
		s.request()
		for range 5 {
			time.Sleep(suspectWithin + time.Second)
			s, _ = f.reopens(s)
			s.request()
			s.request()
			s.send(resp{Type: rds, Version: "1", Resources: clusters("a")})
			s.request()
		}
		if key.Excluding() {
			t.Error("a stream that lived for long excludes a name")
		}
		for range 5 {
			n.remove("one")
			f.server.Stop()
			f = n.origin("one")
			s = f.opens()
			s.request()
			s.request()
		}
		if key.Excluding() {
			t.Error("a lost connection excludes a name")
		}
	})
}
