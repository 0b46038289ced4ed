package xds

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

// A NameSet has the same names as a map, does not depend on its history, and its Diff is exact.
func TestNameSetAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.Custom(func(t *rapid.T) string {
			i := rapid.IntRange(0, 900).Draw(t, "i")
			return fmt.Sprintf("n%d%s", i, strings.Repeat("x", i%3*200))
		})
		var set *NameSet
		plain := map[string]bool{}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			before, names := set, rapid.SliceOfN(name, 0, 300).Draw(t, "names")
			was := maps.Clone(plain)
			if rapid.Bool().Draw(t, "add") {
				set = set.Add(names...)
				for _, n := range names {
					plain[n] = true
				}
			} else {
				set = set.Remove(names...)
				for _, n := range names {
					delete(plain, n)
				}
			}
			want := slices.Sorted(maps.Keys(plain))
			if got := slices.Collect(set.All()); !slices.Equal(got, want) {
				t.Fatalf("names %v, want %v", got, want)
			}
			weight := 0
			for n := range plain {
				weight += NameWeight(len(n))
			}
			if set.Weight() != weight {
				t.Fatalf("Weight %d, want %d", set.Weight(), weight)
			}
			if set.Len() != len(plain) {
				t.Fatalf("Len %d, want %d", set.Len(), len(plain))
			}
			if again := NewNameSet(want...); !again.Equal(set) || again.Sum() != set.Sum() {
				t.Fatal("a new set of the same names is not equal")
			}
			for n, added := range before.Diff(set) {
				if was[n] == plain[n] || plain[n] != added {
					t.Fatalf("Diff yields %s, %v", n, added)
				}
				was[n] = plain[n]
			}
			for n := range plain {
				if !was[n] || !set.Has(n) {
					t.Fatalf("%s is missing from Diff, or Has is false", n)
				}
			}
		}
	})
}

func TestNameWeight(t *testing.T) {
	for bytes, want := range map[int]int{0: 1, 1: 1, 256: 1, 257: 2, 512: 2, 513: 3, MaxNameBytes: MaxNameBytes / 256} {
		if got := NameWeight(bytes); got != want {
			t.Errorf("%d bytes weigh %d, want %d", bytes, got, want)
		}
	}
}

// Adding one name copies one chunk and keeps the others.
func TestNameSetSharesChunks(t *testing.T) {
	var names []string
	for i := range 10000 {
		names = append(names, fmt.Sprintf("cluster-%05d", i))
	}
	a := NewNameSet(names...)
	b := a.Add("cluster-05000-new")
	shared := 0
	for _, c := range b.Chunks() {
		if slices.Contains(a.Chunks(), c) {
			shared++
		}
	}
	if len(b.Chunks())-shared > 4 {
		t.Fatalf("%d of %d chunks are new", len(b.Chunks())-shared, len(b.Chunks()))
	}
}

// A client that may subscribe to some names may also send their versions.
func TestVersionsOfLongNames(t *testing.T) {
	const n = 10
	q := &discoveryv3.DeltaDiscoveryRequest{InitialResourceVersions: map[string]string{}}
	for i := range n {
		q.InitialResourceVersions[strings.Repeat(string(rune('a'+i)), NameUnit)] = strings.Repeat("f", 32)
	}
	msg, err := proto.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	if err := new(Request).Scan(Delta, msg, n); err != nil {
		t.Errorf("%d names with their versions, of %d: %v", n, n, err)
	}
}
