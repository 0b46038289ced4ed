package xds

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"
	"weak"

	"google.golang.org/protobuf/encoding/protowire"
)

// rawOf returns a resource as parsed from a response.
func rawOf(t testing.TB, name, value, version string, extra ...byte) *ParsedResource {
	t.Helper()
	wire := endpointAny(name, value)
	body := protowire.AppendBytes(protowire.AppendTag(nil, resourceBody, protowire.BytesType), wire)
	r := &ParsedResource{Name: name, body: body, extra: extra, OriginVersion: version}
	if err := r.check(TypeOf(EndpointType), wire); err != nil {
		t.Fatal(err)
	}
	return r
}

func endpointAny(name, value string) []byte {
	m := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), name)
	m = protowire.AppendString(protowire.AppendTag(m, 100, protowire.BytesType), value)
	a := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), string(EndpointType))
	return protowire.AppendBytes(protowire.AppendTag(a, 2, protowire.BytesType), m)
}

// Equal resources share one content, whichever key and origin brings them. Different resources
// never do, even with equal hashes.
func TestContentsAreHeldOnce(t *testing.T) {
	typ := TypeOf(EndpointType)
	one := rawOf(t, "a", "x", "1").Take(typ, nil)
	other := rawOf(t, "a", "x", "2").Take(typ, nil)
	if one.content != other.content || one.OriginVersion != "1" || other.OriginVersion != "2" {
		t.Errorf("%+v and %+v", one, other)
	}
	// Resources without a TTL are shared too, with the version that came last.
	if again := rawOf(t, "a", "x", "2").Take(typ, nil); again != other {
		t.Error("another resource for the same content and version")
	}
	timed := rawOf(t, "a", "x", "2")
	timed.hasTTL, timed.ttl = true, time.Minute
	if lives := timed.Take(typ, nil); lives == other || lives.TTL() != time.Minute {
		t.Errorf("with a TTL: %+v", lives)
	}
	if again := rawOf(t, "a", "x", "2").Take(typ, nil); again != other {
		t.Error("a resource with a TTL replaced the shared one")
	}
	for name, differs := range map[string]*ParsedResource{
		"name":  rawOf(t, "b", "x", "1"),
		"body":  rawOf(t, "a", "y", "1"),
		"extra": rawOf(t, "a", "x", "1", 0x98, 0x06, 1),
	} {
		got := differs.Take(typ, nil)
		if got.content == one.content || got.Name == one.Name && got.Same(one) {
			t.Errorf("%s: the same content", name)
		}
		// equals must be false even if the hashes were equal.
		h := differs.hash()
		set := &sharedContents[h%uint64(len(sharedContents))]
		if set.Find(h, func(c *content) bool { return c == got.content }) == nil {
			t.Errorf("%s: not in the set", name)
		}
		if differs.equals(one.content) {
			t.Errorf("%s: equal to a different one", name)
		}
	}
	// Take copies, because the buffer of the response is reused.
	r := rawOf(t, "mine", "x", "")
	held := r.Take(typ, nil)
	clear(r.body)
	if string(held.Any()) != string(endpointAny("mine", "x")) {
		t.Error("the resource aliases the response")
	}
	runtime.KeepAlive(other)
}

// An unused content leaves its set.
func TestContentsAreForgotten(t *testing.T) {
	typ := TypeOf(EndpointType)
	const n = 1000
	var hashes [n]uint64
	for i := range n {
		r := rawOf(t, fmt.Sprint("forgotten-", i), "x", "")
		hashes[i] = r.hash()
		r.Take(typ, nil)
	}
	waitForGC(t, func() bool {
		left := 0
		for _, h := range hashes {
			set := &sharedContents[h%uint64(len(sharedContents))]
			set.mu.Lock()
			left += len(set.entries[h])
			set.mu.Unlock()
		}
		return left == 0
	})
}

// BenchmarkTake measures a new resource, and one that another key has.
func BenchmarkTake(b *testing.B) {
	typ := TypeOf(EndpointType)
	value := string(make([]byte, 1000))
	b.Run("new", func(b *testing.B) {
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			b.StopTimer()
			r := rawOf(b, fmt.Sprint("bench-", i), value, "1")
			i++
			b.StartTimer()
			r.Take(typ, nil)
		}
	})
	b.Run("held", func(b *testing.B) {
		r := rawOf(b, "bench", value, "1")
		held := r.Take(typ, nil)
		b.ReportAllocs()
		for b.Loop() {
			r.Take(typ, nil)
		}
		runtime.KeepAlive(held)
	})
}

// waitForGC runs the garbage collector until done returns true.
func waitForGC(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !done(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("unused values are kept")
		}
		runtime.GC()
	}
}

// After a burst, a set shrinks to what it has, and still finds it.
func TestWeakSetShrinksAfterABurst(t *testing.T) {
	type value struct{ n uint64 }
	const n, kept = 1 << 17, 100
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	var set WeakSet[value]
	var mine []*value
	before := heap()
	var burst []*value
	for i := range uint64(n) {
		v := set.Keep(i, &value{i}, func(*value) bool { return false })
		if burst = append(burst, v); i < kept {
			mine = append(mine, v)
		}
	}
	if set.Len() != n {
		t.Fatalf("%d of %d kept", set.Len(), n)
	}
	runtime.KeepAlive(burst)
	burst = nil
	waitForGC(t, func() bool { return set.Len() == kept })
	if grew := heap() - before; grew > n { // the map of the burst takes about 40 times as much
		t.Errorf("%d values take %d bytes after a burst of %d", kept, grew, n)
	}
	for i, v := range mine {
		if set.Find(uint64(i), func(have *value) bool { return have.n == v.n }) != v {
			t.Fatalf("%d is not found", i)
		}
	}
	mine = nil
	waitForGC(t, func() bool { return set.Len() == 0 })
	if v := new(value); set.Keep(1, v, func(*value) bool { return true }) != v {
		t.Error("an empty set does not add a value")
	}
}

// The owner of a set is released with the set, even if it refers to values of the set.
func TestWeakSetDoesNotKeepItsOwner(t *testing.T) {
	type value struct{ n uint64 }
	type owner struct {
		set  WeakSet[value]
		uses *value
	}
	var owners []weak.Pointer[owner]
	for h := range uint64(100) {
		o := new(owner)
		o.uses = o.set.Keep(h, &value{h}, func(*value) bool { return false })
		owners = append(owners, weak.Make(o))
	}
	waitForGC(t, func() bool {
		return !slices.ContainsFunc(owners, func(o weak.Pointer[owner]) bool { return o.Value() != nil })
	})
}
