package xds

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// cutFor cuts a resource as a response brings it.
func cutFor(t testing.TB, name, value, version string, extra ...byte) *Raw {
	t.Helper()
	wire := plainAny(name, value)
	body := protowire.AppendBytes(protowire.AppendTag(nil, resourceBody, protowire.BytesType), wire)
	r := &Raw{Name: name, body: body, extra: extra, OriginVersion: version}
	if err := r.check(TypeOf(EndpointType), wire); err != nil {
		t.Fatal(err)
	}
	return r
}

func plainAny(name, value string) []byte {
	m := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), name)
	m = protowire.AppendString(protowire.AppendTag(m, 100, protowire.BytesType), value)
	a := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), string(EndpointType))
	return protowire.AppendBytes(protowire.AppendTag(a, 2, protowire.BytesType), m)
}

// altered is a resource with another content, which is in no set.
func altered(r *Resource, change func(*content)) *Resource {
	out, was := *r, r.content
	out.content = &content{
		Name: was.Name, Aliases: was.Aliases, Version: was.Version, Uncacheable: was.Uncacheable, Follows: was.Follows,
		body: was.body, extra: was.extra, member: was.member, more: was.more,
	}
	change(out.content)
	return &out
}

// What is equal is held once, whichever key and origin brings it; what differs in
// anything is never taken for it, also if the hash is the same.
func TestContentsAreHeldOnce(t *testing.T) {
	typ := TypeOf(EndpointType)
	one := cutFor(t, "a", "x", "1").Take(typ, nil)
	other := cutFor(t, "a", "x", "2").Take(typ, nil)
	if one.content != other.content || one.OriginVersion != "1" || other.OriginVersion != "2" {
		t.Errorf("%+v and %+v", one, other)
	}
	// A resource without a TTL is one as well, with the version that came last.
	if again := cutFor(t, "a", "x", "2").Take(typ, nil); again != other {
		t.Error("another resource for the same content and version")
	}
	timed := cutFor(t, "a", "x", "2")
	timed.timed, timed.ttl = true, time.Minute
	if lives := timed.Take(typ, nil); lives == other || lives.TTL() != time.Minute {
		t.Errorf("with a TTL it is %+v", lives)
	}
	if again := cutFor(t, "a", "x", "2").Take(typ, nil); again != other {
		t.Error("a TTL takes the place of what has none")
	}
	for name, differs := range map[string]*Raw{
		"name":  cutFor(t, "b", "x", "1"),
		"body":  cutFor(t, "a", "y", "1"),
		"extra": cutFor(t, "a", "x", "1", 0x98, 0x06, 1),
	} {
		got := differs.Take(typ, nil)
		if got.content == one.content || got.Name == one.Name && got.Same(one) {
			t.Errorf("%s: the same content", name)
		}
		// As if the hashes were equal.
		h := differs.hash()
		set := &contents[h%uint64(len(contents))]
		if set.Find(h, func(c *content) bool { return c == got.content }) == nil {
			t.Errorf("%s: it is not kept", name)
		}
		if differs.equals(one.content) {
			t.Errorf("%s: equal to another", name)
		}
	}
	// What a response brings is copied: its buffer is used again.
	r := cutFor(t, "mine", "x", "")
	held := r.Take(typ, nil)
	clear(r.body)
	if string(held.Any()) != string(plainAny("mine", "x")) {
		t.Error("it aliases the response")
	}
	runtime.KeepAlive(other)
}

// What nobody holds any more is forgotten.
func TestContentsAreForgotten(t *testing.T) {
	typ := TypeOf(EndpointType)
	const n = 1000
	var hashes [n]uint64
	for i := range n {
		r := cutFor(t, fmt.Sprint("forgotten-", i), "x", "")
		hashes[i] = r.hash()
		r.Take(typ, nil)
	}
	collected(t, func() bool {
		left := 0
		for _, h := range hashes {
			set := &contents[h%uint64(len(contents))]
			set.mu.Lock()
			left += len(set.items[h])
			set.mu.Unlock()
		}
		return left == 0
	})
}

// BenchmarkTake is what a resource costs that no key holds, and one that another
// key does.
func BenchmarkTake(b *testing.B) {
	typ := TypeOf(EndpointType)
	value := string(make([]byte, 1000))
	b.Run("new", func(b *testing.B) {
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			b.StopTimer()
			r := cutFor(b, fmt.Sprint("bench-", i), value, "1")
			i++
			b.StartTimer()
			r.Take(typ, nil)
		}
	})
	b.Run("held", func(b *testing.B) {
		r := cutFor(b, "bench", value, "1")
		held := r.Take(typ, nil)
		b.ReportAllocs()
		for b.Loop() {
			r.Take(typ, nil)
		}
		runtime.KeepAlive(held)
	})
}
