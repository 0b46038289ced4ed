package xds

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"pgregory.net/rapid"
)

// Context parameters are compared sorted, and nothing else of a name is looked
// into.
func TestP28_CanonicalNames(t *testing.T) {
	for name, want := range map[string]string{
		"xdstp://a/T/id?b=2&a=1":             "xdstp://a/T/id?a=1&b=2",
		"xdstp://a/T/id?a=1&b=2":             "xdstp://a/T/id?a=1&b=2",
		"xdstp:///T/id?z&y=1&x":              "xdstp:///T/id?x&y=1&z",
		"xdstp://a/T/id?b=2&a=1#entry=e":     "xdstp://a/T/id?a=1&b=2#entry=e",
		"xdstp://a/T/id#b?z=1&a=1":           "xdstp://a/T/id#b?z=1&a=1", // no parameters
		"xdstp://a/T/id?a=b?c&a=a":           "xdstp://a/T/id?a=a&a=b?c",
		"xdstp://a/T/id":                     "xdstp://a/T/id",
		"xdstp://a/T/%49D/?":                 "xdstp://a/T/%49D/?",
		"xdstp:/a/T/id?b=2&a=1":              "xdstp:/a/T/id?b=2&a=1",
		"XDSTP://a/T/id?b=2&a=1":             "XDSTP://a/T/id?b=2&a=1",
		"http://a/T/id?b=2&a=1":              "http://a/T/id?b=2&a=1",
		"outbound|80||b.default?b=2&a=1":     "outbound|80||b.default?b=2&a=1",
		"":                                   "",
		"xdstp://a/T/\u00fc\x00?\x00b&\x00a": "xdstp://a/T/\u00fc\x00?\x00a&\x00b",
	} {
		if got := Canonical(name); got != want {
			t.Errorf("%q is compared as %q, want %q", name, got, want)
		}
	}
}

func TestP28_GlobOfAName(t *testing.T) {
	for name, want := range map[string]string{
		"xdstp://a/T/foo/bar":           "xdstp://a/T/foo/*",
		"xdstp://a/T/foo/bar?a=1&b=2":   "xdstp://a/T/foo/*?a=1&b=2",
		"xdstp://a/T/foo/bar?p=x/y":     "xdstp://a/T/foo/*?p=x/y",
		"xdstp://a/T/foo/bar#entry=x/y": "xdstp://a/T/foo/*#entry=x/y",
		"xdstp:///T/bar":                "xdstp:///T/*",
		"xdstp://a/T/foo/":              "xdstp://a/T/foo/*",
		"xdstp://a/T/foo/*":             "", // is one itself
		"xdstp://a/T/foo/*?a=1":         "",
		"xdstp://a/T/foo/*x":            "xdstp://a/T/foo/*",
		"xdstp://a/T":                   "",
		"xdstp://a":                     "",
		"xdstp://":                      "",
		"route/host":                    "",
	} {
		if got := Glob(name); got != want {
			t.Errorf("%q falls under %q, want %q", name, got, want)
		}
	}
}

// What is written is found again under what it is compared by, whatever else is.
func TestP28_Spelling(t *testing.T) {
	param := rapid.SampledFrom([]string{"a=1", "b=2", "c", "a=1\x00", "d=" + strings.Repeat("x", 300)})
	path := rapid.SampledFrom([]string{"xdstp://a/T/x", "xdstp://a/T/xy", "xdstp://a/T/x\x00y", "plain"})
	name := rapid.Custom(func(t *rapid.T) string {
		params := rapid.SliceOfNDistinct(param, 0, 4, rapid.ID[string]).Draw(t, "parameters")
		return path.Draw(t, "path") + "?" + strings.Join(params, "&")
	})
	rapid.Check(t, func(t *rapid.T) {
		var s Spelling
		want := map[string]string{}
		for range rapid.IntRange(1, 10).Draw(t, "steps") {
			names := rapid.SliceOfN(name, 0, 6).Draw(t, "names")
			was := s
			before := fmt.Sprint(slices.Collect(was.pairs.All()))
			if rapid.Bool().Draw(t, "with") {
				s = s.With(names...)
				for _, n := range names {
					want[Canonical(n)] = n
				}
			} else {
				for i, n := range names {
					names[i] = Canonical(n)
					delete(want, names[i])
				}
				s = s.Without(names...)
			}
			if got := fmt.Sprint(slices.Collect(was.pairs.All())); got != before {
				t.Fatal("a spelling changed")
			}
			n := 0
			for canonical, w := range want {
				if got := s.Of(canonical); got != w {
					t.Fatalf("%q is written %q, want %q", canonical, got, w)
				}
				if w != canonical {
					n++
				}
			}
			if s.Len() != n {
				t.Fatalf("%d are kept, want %d", s.Len(), n)
			}
			var anew Spelling
			for _, w := range want {
				anew = anew.With(w)
			}
			if !s.Equal(anew) || s.Sum() != anew.Sum() {
				t.Fatal("two of the same content are not equal")
			}
		}
	})
}

// A resource goes out as the origin wrote it: its name, and its aliases.
func TestP28_SentAsTheOriginWroteIt(t *testing.T) {
	const sorted, unsorted = "xdstp://o/T/c/x?a=1&b=2", "xdstp://o/T/c/x?b=2&a=1"
	r := goesBy(t, widget, unsorted, "1", "xdstp://o/T/y?z&y", "plain")
	if r.Name != sorted || r.Written() != unsorted {
		t.Errorf("it is called %q and written %q", r.Name, r.Written())
	}
	want := []string{"plain", "xdstp://o/T/c/*?a=1&b=2", "xdstp://o/T/y?y&z"}
	if !slices.Equal(r.Handles(), want) {
		t.Errorf("it goes by %v, want %v", r.Handles(), want)
	}
	b := Body{Form: Form{Variant: Delta}, Type: widget, Resources: []*Resource{r}, Removed: []string{unsorted}}
	got := new(discoveryv3.DeltaDiscoveryResponse)
	if err := proto.Unmarshal(b.Encode(), got); err != nil {
		t.Fatal(err)
	}
	if e := got.Resources[0]; e.Name != unsorted || !slices.Equal(e.Aliases, []string{"xdstp://o/T/y?z&y", "plain"}) {
		t.Errorf("it is sent as %v", e)
	}
	if !slices.Equal(got.RemovedResources, []string{unsorted}) {
		t.Errorf("removed are %v", got.RemovedResources)
	}
	// In another spelling it is another resource to clients, which read it.
	if r.Same(goesBy(t, widget, sorted, "1", "xdstp://o/T/y?z&y", "plain")) {
		t.Error("the same in two spellings")
	}
}

// What could not be resolved is passed on as it came.
func TestP18_UnresolvedIsPassedOnAsItCame(t *testing.T) {
	for _, in := range []*discoveryv3.Resource{
		{Name: "r/cannot", Aliases: []string{"r/a", "r/b"}, Version: "7"},
		{Name: "r/a", Aliases: []string{"r/a"}},
	} {
		raw := cutOf(t, widget, in)
		if raw.HasBody() || !raw.Unresolved(nil) {
			t.Fatalf("%v is something else", in)
		}
		if _, ok := raw.TakeUnresolved(NewNameSet("r/z")); ok {
			t.Error("nobody asked for it")
		}
		w, ok := raw.TakeUnresolved(NewNameSet("r/a", "r/z"))
		if !ok || !slices.Equal(w.Names, []string{"r/a"}) {
			t.Fatalf("%+v", w)
		}
		b := Body{Form: Form{Variant: Delta}, Type: widget, Resources: []*Resource{w.Resource}}
		wire := b.Encode()
		got := new(discoveryv3.DeltaDiscoveryResponse)
		if err := proto.Unmarshal(wire, got); err != nil {
			t.Fatal(err)
		}
		if len(got.Resources) != 1 || !proto.Equal(got.Resources[0], in) {
			t.Errorf("%v is sent as %v", in, got.Resources)
		}
		if cap(wire) != len(wire) {
			t.Errorf("%d bytes, made room for %d", len(wire), cap(wire))
		}
	}
	held := goesBy(t, widget, "r/a", "1", "r/b")
	held.OriginVersion = "7"
	for want, in := range map[bool]*discoveryv3.Resource{
		true:  {Name: "r/a", Aliases: []string{"r/b"}, Version: "8"},
		false: {Name: "r/a", Aliases: []string{"r/b"}, Version: "7"}, // a heartbeat
	} {
		if cutOf(t, widget, in).Unresolved(held) != want {
			t.Errorf("%v beside a resource of version 7", in)
		}
	}
}
