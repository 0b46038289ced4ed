package xds

import (
	"fmt"
	"slices"
	"strings"
	"testing"

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
