package snapshot

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"xdsrelay/internal/xds"
)

// An error is kept beside the resource until the next resource, and shown to clients that list its
// name (P39).
func TestP39_ErrorsAreKeptPerName(t *testing.T) {
	b := NewBuilder(xds.TypeOf(xds.EndpointType))
	var s *Snapshot
	a := newRes(t, xds.EndpointType, "a", "")
	step := func(u Update) []string {
		t.Helper()
		b.Apply(u)
		var names []string
		s, names = b.Snapshot(s, 1)
		return names
	}
	denied := resourceErrorOf(t, "a", codes.PermissionDenied, "no")
	step(Update{Changed: []*xds.Resource{a, newRes(t, xds.EndpointType, "b", "")}})
	if got := step(Update{Errors: []*xds.ResourceError{denied, resourceErrorOf(t, "c", codes.Internal, "")}}); !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("changed %v", got)
	}
	if s.Resource("a") != a || s.Error(namesSub("a"), "a") != denied || s.Error(namesSub("b"), "a") != nil || s.Error(wildcardSub(), "a") != nil ||
		s.Error(&Subscription{Wildcard: true, Names: xds.NewNameSet("a")}, "a") != denied {
		t.Error("not shown beside the resource, or shown to other clients")
	}
	if _, is := s.Look(namesSub("c"), "c"); is != Pending || !s.Known("c") || s.ErrorCount() != 2 {
		t.Errorf("c is %d", is)
	}
	list := func(sub *Subscription) (out []string) {
		s.Errors(sub, func(e *xds.ResourceError) bool { out = append(out, e.Name); return true })
		return out
	}
	if list(wildcardSub()) != nil || !slices.Equal(list(namesSub("a", "b", "c")), []string{"a", "c"}) || !slices.Equal(list(namesSub("b", "c")), []string{"c"}) {
		t.Errorf("%v %v %v", list(wildcardSub()), list(namesSub("a", "b", "c")), list(namesSub("b", "c")))
	}
	// The same error again changes nothing; another error does.
	before := s
	if step(Update{Errors: []*xds.ResourceError{resourceErrorOf(t, "a", codes.PermissionDenied, "no")}}); s != before {
		t.Error("the same error is a change")
	}
	if got := step(Update{Errors: []*xds.ResourceError{resourceErrorOf(t, "a", codes.PermissionDenied, "never")}}); !slices.Equal(got, []string{"a"}) {
		t.Errorf("changed %v", got)
	}
	// An error that comes with its resource is kept: it applies after the resource.
	step(Update{Changed: []*xds.Resource{a}, Errors: []*xds.ResourceError{resourceErrorOf(t, "a", codes.PermissionDenied, "never")}})
	if s.Error(namesSub("a"), "a") == nil {
		t.Error("the resource in the same update cleared the error")
	}
	if got := step(Update{Changed: []*xds.Resource{a}, Errors: []*xds.ResourceError{resourceErrorOf(t, "a", codes.PermissionDenied, "never")}}); len(got) > 0 {
		t.Errorf("changed %v", got)
	}
	// The next resource clears the error, even if it is equal to the one held.
	if got := step(Update{Changed: []*xds.Resource{a}}); !slices.Equal(got, []string{"a"}) || s.Error(namesSub("a"), "a") != nil {
		t.Errorf("changed %v, %v", got, s.Error(namesSub("a"), "a"))
	}
	// A removal clears it too, and so does the end of all subscriptions to the name.
	step(Update{Removed: []string{"c"}, Errors: []*xds.ResourceError{denied}})
	if s.ErrorCount() != 1 || s.Error(namesSub("c"), "c") != nil {
		t.Errorf("%d kept", s.ErrorCount())
	}
	b.Forget(nil, "a", "b", "c")
	if s, _ = b.Snapshot(s, 1); s.ErrorCount() != 0 || b.errorBytes != 0 || b.entries.Len() != 0 {
		t.Errorf("%d kept, of %d bytes", s.ErrorCount(), b.errorBytes)
	}
	// The end of the wildcard clears its errors.
	step(Update{Wildcard: true, Errors: []*xds.ResourceError{resourceErrorOf(t, "*", codes.Internal, ""), resourceErrorOf(t, "a", codes.Internal, ""), resourceErrorOf(t, "b", codes.Internal, "")}})
	b.EndWildcard()
	if s, _ = b.Snapshot(s, 1); s.ErrorCount() != 0 || b.errorBytes != 0 || b.entries.Len() != 0 {
		t.Errorf("%d kept, of %d bytes", s.ErrorCount(), b.errorBytes)
	}
}

// The errors for the wildcard and for the name are kept apart, in either order, even if they are
// equal. Each ends with its part and answers only that part (P57).
func TestP51_ErrorsOfBothParts(t *testing.T) {
	for _, same := range []bool{true, false} {
		for _, wildFirst := range []bool{true, false} {
			b := NewBuilder(xds.TypeOf(xds.ClusterType))
			var s *Snapshot
			said := map[Scope]*xds.ResourceError{ByWildcard: resourceErrorOf(t, "n", codes.Internal, "to the wildcard"), ByName: resourceErrorOf(t, "n", codes.Internal, "to the name")}
			if same {
				said[ByWildcard] = resourceErrorOf(t, "n", codes.Internal, "to the name")
			}
			is := func(when string, wild, named bool) {
				t.Helper()
				s, _ = b.Snapshot(s, 1)
				for scope, want := range map[Scope]bool{ByWildcard: wild, ByName: named} {
					if got := s.Part(scope).Error("n"); (got != nil) != want || want && !got.Same(said[scope]) {
						t.Errorf("same %v, wildcard first %v, %s: the error of part %v: %v", same, wildFirst, when, scope, got)
					}
					if s.Part(scope).Known("n") != want || s.Part(scope).Unanswered("n") == want {
						t.Errorf("same %v, wildcard first %v, %s: part %v: known %v", same, wildFirst, when, scope, !want)
					}
				}
				if got := s.Error(wildcardSub(), "n"); (got != nil) != wild {
					t.Errorf("same %v, wildcard first %v, %s: the wildcard gets %v", same, wildFirst, when, got)
				}
			}
			b.Apply(Update{Wildcard: wildFirst, Errors: []*xds.ResourceError{said[ScopeOf(wildFirst)]}})
			is("the first", wildFirst, !wildFirst)
			before := s
			b.Apply(Update{Wildcard: !wildFirst, Errors: []*xds.ResourceError{said[ScopeOf(!wildFirst)]}})
			is("both", true, true)
			if same && s.Error(namesSub("n"), "n") != before.Error(namesSub("n"), "n") {
				t.Error("another error for the listed name")
			}
			if wildFirst {
				b.Apply(Update{Wildcard: true, Removed: []string{"n"}})
				is("the wildcard's goes", false, true)
			} else {
				b.Forget(xds.NewNameSet(), "n")
				is("the name is forgotten", true, false)
				b.EndWildcard()
				is("the wildcard ends", false, false)
			}
			b.Apply(Update{Changed: []*xds.Resource{newRes(t, xds.ClusterType, "n", "")}})
			if s, _ = b.Snapshot(s, 1); s.ErrorCount() != 0 || b.errorBytes != 0 {
				t.Errorf("%d kept, of %d bytes, after a resource", s.ErrorCount(), b.errorBytes)
			}
		}
	}
}

func TestP39_ErrorsAreBounded(t *testing.T) {
	const each = 16 << 10
	b := NewBuilder(xds.TypeOf(xds.EndpointType))
	text := strings.Repeat("x", each-100)
	for i := range 2 * maxErrorsBytes / each {
		b.Apply(Update{Errors: []*xds.ResourceError{resourceErrorOf(t, fmt.Sprint(i), codes.Internal, text)}})
	}
	s, _ := b.Snapshot(nil, 1)
	if b.errorBytes > maxErrorsBytes || s.ErrorCount() > maxErrorsBytes/each*11/10 || s.ErrorCount() == 0 {
		t.Errorf("%d bytes in %d", b.errorBytes, s.ErrorCount())
	}
	if n := b.DroppedErrors(); n != 2*maxErrorsBytes/each-s.ErrorCount() || b.DroppedErrors() != 0 {
		t.Errorf("DroppedErrors is %d", n)
	}
	// An error that replaces another needs only the difference in size.
	if news, kept := b.setError(resourceErrorOf(t, "0", codes.Internal, text[1:]), ByName); !news || !kept {
		t.Error("no room for an error that replaces another")
	}
}
