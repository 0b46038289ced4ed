package xds

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Keys are different even if their joined elements look equal.
func TestKeysDoNotCollide(t *testing.T) {
	lists := [][]string{
		{"a_b", "c"}, {"a", "b_c"}, {"a", "b", "c"}, {"a_b_c"}, {"a/b", "c"}, {"a", "b/c"}, {"a/b/c"},
		{"ab", "c"}, {"a", "bc"}, {"abc"}, {"", "abc"}, {"abc", ""}, {""}, {"", ""}, {`"a"`}, {"a", "b", ""},
		{"\x01a"}, {"\x02ab\x01c"}, {"ä"}, {"a\xff"}, {"a\ufffd"}, {`\xff`}, {"\xff"},
	}
	keys, texts := map[Key]int{}, map[string]int{}
	for i, l := range lists {
		k := NewKey(l...)
		if j, ok := keys[k]; ok {
			t.Errorf("%q and %q are the same key", lists[j], l)
		}
		if j, ok := texts[k.String()]; ok {
			t.Errorf("%q and %q have one string: %s", lists[j], l, k)
		}
		keys[k], texts[k.String()] = i, i
		if got := k.Elements(); !slices.Equal(got, l) {
			t.Errorf("elements of %q are %q", l, got)
		}
		if k.IsZero() {
			t.Errorf("the key of %q is zero", l)
		}
	}
	if !NewKey().IsZero() || (NewKey() != Key{}) || len(Key{}.Elements()) != 0 {
		t.Error("a key without elements is not zero")
	}
}

func TestKeyString(t *testing.T) {
	for _, c := range []struct {
		elements []string
		want     string
	}{
		{[]string{"edge-1", "eu.west_1:2@x"}, "edge-1/eu.west_1:2@x"},
		{[]string{"a/b", "c"}, `"a/b"/c`},
		{[]string{"", "x y"}, `""/"x y"`},
		{[]string{`q"`}, `"q\""`},
		{nil, ""},
	} {
		if got := NewKey(c.elements...).String(); got != c.want {
			t.Errorf("the string of %q is %s, want %s", c.elements, got, c.want)
		}
	}
}

func TestParseKeyRefusesWhatStringNeverWrites(t *testing.T) {
	for _, s := range []string{
		"", "/", "a/", "/a", "a//b", `"a"`, `""x`, `"a b`, `"a b"c`, `a b`, `ä`, `"\u0020"`, `"a b"/`, "`a b`", `'a b'`, `"\q"`,
	} {
		if k, ok := ParseKey(s); ok {
			t.Errorf("%s parses as %q", s, k.Elements())
		}
	}
}

func TestKeyRoundTrip(t *testing.T) {
	element := rapid.OneOf(
		rapid.StringOf(rapid.RuneFrom([]rune(`a_/b"\ ä`))),
		rapid.String(),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 300), func(b []byte) string { return string(b) }),
	)
	lists := rapid.SliceOfN(element, 1, 4)
	rapid.Check(t, func(t *rapid.T) {
		a, b := lists.Draw(t, "a"), lists.Draw(t, "b")
		ka, kb := NewKey(a...), NewKey(b...)
		if same := slices.Equal(a, b); (ka == kb) != same || (ka.String() == kb.String()) != same {
			t.Fatalf("%q (%s) and %q (%s)", a, ka, b, kb)
		}
		if back, ok := ParseKey(ka.String()); !ok || back != ka {
			t.Fatalf("%q has the string %s, which parses as %q, %v", a, ka, back.Elements(), ok)
		}
	})
}

// ParseKey accepts exactly what String returns.
func FuzzParseKey(f *testing.F) {
	for _, s := range []string{"a", "a/b", `"a/b"/c`, `""`, `"\xff"/x`, `"a`, "a//b", `"ä"`, `"\u00e4"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		k, ok := ParseKey(s)
		if ok && (k.IsZero() || k.String() != s || NewKey(k.Elements()...) != k) {
			t.Fatalf("%s parses as %q, which has the string %s", s, k.Elements(), k)
		}
	})
}
