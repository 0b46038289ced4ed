package xds

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// failure is an element of resource_errors.
func failure(t testing.TB, name string, code codes.Code, message string) *ResourceError {
	t.Helper()
	e, err := cutError(marshal(t, &discoveryv3.ResourceError{
		ResourceName: &discoveryv3.ResourceName{Name: name}, ErrorDetail: &statuspb.Status{Code: int32(code), Message: message}}))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// resource_errors are read in both variants, and go out as they came.
func TestP39_ResourceErrorsPassThrough(t *testing.T) {
	for _, v := range []Variant{SotW, Delta} {
		t.Run(v.String(), func(t *testing.T) {
			element := append(wire(2, wire(1, 7, 2, "no"), 1, wire(1, "a")), wire(100, "future")...)
			msg := wire(4, string(widget), 5, "n", int(respErrors[v]), element)
			r, err := ParseResponse(v, msg)
			if err != nil || len(r.Errors) != 1 {
				t.Fatalf("%+v, %v", r, err)
			}
			e := r.Errors[0]
			if e.Name != "a" || e.Code != codes.PermissionDenied || e.Absent() {
				t.Errorf("%+v", e)
			}
			clear(msg)
			b := Body{Form: Form{Variant: v}, Type: widget, Errors: r.Errors}
			out := b.Encode()
			if got := fieldsOf(t, out, respErrors[v]); len(got) != 1 || !slices.Equal(got[0], element) || len(out) != b.Size() {
				t.Errorf("sent %x", got)
			}

			for what, bad := range map[string]struct {
				element []byte
				fault   error
			}{
				"garbage":        {[]byte{0x0a, 0x7f}, ErrUnreadable},
				"no UTF-8":       {wire(1, wire(1, "\xff")), ErrUnreadable},
				"an endless one": {wire(1, wire(1, strings.Repeat("x", MaxNameBytes+1))), ErrLongName},
			} {
				r, err := ParseResponse(v, wire(int(respErrors[v]), bad.element, 4, string(widget), 5, "n"))
				wantFault(t, what, err, bad.fault)
				if r.Nonce != "n" || r.TypeURL != widget {
					t.Errorf("%s: nothing to NACK with: %+v", what, r)
				}
			}
		})
	}
}

func TestP39_LongErrorsAreCut(t *testing.T) {
	e := failure(t, "a", codes.Internal, "ö"+strings.Repeat("ü", maxErrorBytes))
	m := new(discoveryv3.ResourceError)
	if err := proto.Unmarshal(e.wire, m); err != nil {
		t.Fatal(err)
	}
	if e.size() > 5<<10 || m.ResourceName.Name != "a" || m.ErrorDetail.Code != int32(codes.Internal) || len(m.ErrorDetail.Message) < maxErrorText/2 {
		t.Errorf("%d bytes: %v", e.size(), m.ErrorDetail.Code)
	}
}

// NOT_FOUND is absence, but not of what a whole wildcard covers.
func TestP25_NotFoundIsAbsence(t *testing.T) {
	for name, want := range map[string]bool{"a": true, "": false, "*": false} {
		if failure(t, name, codes.NotFound, "").Absent() != want {
			t.Errorf("%q", name)
		}
	}
	if failure(t, "a", codes.Unavailable, "").Absent() {
		t.Error("UNAVAILABLE")
	}
}

// An error stays beside what is held until the next resource, and is shown to
// those who asked for its name.
func TestP39_ErrorsAreKeptPerName(t *testing.T) {
	b := NewBuilder(TypeOf(EndpointType))
	var s *Snapshot
	a := newRes(t, EndpointType, "a", "")
	step := func(u Update) []string {
		t.Helper()
		b.Apply(u)
		var names []string
		s, names = b.Snapshot(s, 1)
		return names
	}
	denied := failure(t, "a", codes.PermissionDenied, "no")
	step(Update{Changed: []*Resource{a, newRes(t, EndpointType, "b", "")}})
	if got := step(Update{Errors: []*ResourceError{denied, failure(t, "c", codes.Internal, "")}}); !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("changed %v", got)
	}
	if s.Held("a") != a || s.Error(byName("a"), "a") != denied || s.Error(byName("b"), "a") != nil || s.Error(everything(), "a") != nil {
		t.Error("it is not shown beside the resource, or to the wrong ones")
	}
	if _, is := s.Look(byName("c"), "c"); is != Pending || !s.Known("c") || s.Failed() != 2 {
		t.Errorf("c is %d", is)
	}
	list := func(sub *Subscription) (out []string) {
		s.Errors(sub, func(e *ResourceError) bool { out = append(out, e.Name); return true })
		return out
	}
	if list(everything()) != nil || !slices.Equal(list(byName("a", "b", "c")), []string{"a", "c"}) || !slices.Equal(list(byName("b", "c")), []string{"c"}) {
		t.Errorf("%v %v %v", list(everything()), list(byName("a", "b", "c")), list(byName("b", "c")))
	}
	// The same once more is no news; another word is.
	before := s
	if step(Update{Errors: []*ResourceError{failure(t, "a", codes.PermissionDenied, "no")}}); s != before {
		t.Error("the same error is news")
	}
	if got := step(Update{Errors: []*ResourceError{failure(t, "a", codes.PermissionDenied, "never")}}); !slices.Equal(got, []string{"a"}) {
		t.Errorf("changed %v", got)
	}
	// So is one that comes with its resource, again and again: it is there after it.
	step(Update{Changed: []*Resource{a}, Errors: []*ResourceError{failure(t, "a", codes.PermissionDenied, "never")}})
	if s.Error(byName("a"), "a") == nil {
		t.Error("the resource before it cleared it")
	}
	if got := step(Update{Changed: []*Resource{a}, Errors: []*ResourceError{failure(t, "a", codes.PermissionDenied, "never")}}); len(got) > 0 {
		t.Errorf("changed %v", got)
	}
	// The next resource clears it, even if it is the one that is held.
	if got := step(Update{Changed: []*Resource{a}}); !slices.Equal(got, []string{"a"}) || s.Error(byName("a"), "a") != nil {
		t.Errorf("changed %v, %v", got, s.Error(byName("a"), "a"))
	}
	// So does a removal, and who does not want the name any more.
	step(Update{Removed: []string{"c"}, Errors: []*ResourceError{denied}})
	if s.Failed() != 1 || s.Error(byName("c"), "c") != nil {
		t.Errorf("%d kept", s.Failed())
	}
	b.ForgetBut(nil, "a", "b", "c")
	if s, _ = b.Snapshot(s, 1); s.Failed() != 0 || b.errorBytes != 0 || b.entries.Len() != 0 {
		t.Errorf("%d kept, of %d bytes", s.Failed(), b.errorBytes)
	}
	// A wildcard's go with it.
	step(Update{Wildcard: true, Errors: []*ResourceError{failure(t, "*", codes.Internal, ""), failure(t, "a", codes.Internal, ""), failure(t, "b", codes.Internal, "")}})
	b.EndWildcard()
	if s, _ = b.Snapshot(s, 1); s.Failed() != 0 || b.errorBytes != 0 || b.entries.Len() != 0 {
		t.Errorf("%d kept, of %d bytes", s.Failed(), b.errorBytes)
	}
}

// What came for a name is nothing to the wildcard, and goes with the name though
// the wildcard stays; what came for the wildcard is for all it is said of.
func TestP51_ErrorsForNames(t *testing.T) {
	b := NewBuilder(TypeOf(ClusterType))
	var s *Snapshot
	step := func(u Update) []string {
		t.Helper()
		b.Apply(u)
		var names []string
		s, names = b.Snapshot(s, 1)
		return names
	}
	step(Update{Wildcard: true, Changed: []*Resource{newRes(t, ClusterType, "w", "")}})
	no := failure(t, "w", codes.Internal, "no")
	step(Update{Errors: []*ResourceError{no, failure(t, "n", codes.Internal, "")}})
	if s.Error(everything(), "w") != nil || s.Error(byName("w"), "w") != no || s.Error(everything(), "n") != nil || s.Error(&Subscription{Wildcard: true, Names: NewNameSet("n")}, "n") == nil {
		t.Error("it is told to the wrong ones")
	}
	// The wildcard's removal is no word on the name.
	step(Update{Wildcard: true, Removed: []string{"w"}})
	if s.Error(byName("w"), "w") != no {
		t.Error("the wildcard took it away")
	}
	// Said to both, it is for both, and news to one of them.
	if got := step(Update{Wildcard: true, Errors: []*ResourceError{failure(t, "w", codes.Internal, "no")}}); !slices.Equal(got, []string{"w"}) {
		t.Errorf("changed %v", got)
	}
	if s.Error(everything(), "w") != no || s.Error(byName("w"), "w") != no {
		t.Error("who was told is told something else, or the wildcard nothing")
	}
	if got := step(Update{Errors: []*ResourceError{failure(t, "w", codes.Internal, "no")}}); len(got) > 0 {
		t.Errorf("changed %v", got)
	}
	b.ForgetBut(nil, "w")
	b.ForgetBut(NewNameSet(), "n")
	if s, _ = b.Snapshot(s, 1); s.Failed() != 1 || s.Error(everything(), "w") == nil {
		t.Errorf("%d kept", s.Failed())
	}
	b.EndWildcard()
	if s, _ = b.Snapshot(s, 1); s.Failed() != 0 {
		t.Errorf("%d kept after the wildcard's end", s.Failed())
	}
}

// What was said to the wildcard and to the name is kept apart, whichever came
// first and whether it is the same: each goes with its part, and is an answer to
// that part alone (P57).
func TestP51_ErrorsOfBothParts(t *testing.T) {
	for _, same := range []bool{true, false} {
		for _, wildFirst := range []bool{true, false} {
			b := NewBuilder(TypeOf(ClusterType))
			var s *Snapshot
			said := map[bool]*ResourceError{true: failure(t, "n", codes.Internal, "to the wildcard"), false: failure(t, "n", codes.Internal, "to the name")}
			if same {
				said[true] = failure(t, "n", codes.Internal, "to the name")
			}
			is := func(when string, wild, named bool) {
				t.Helper()
				s, _ = b.Snapshot(s, 1)
				for of, want := range map[bool]bool{true: wild, false: named} {
					if got := s.Part(of).Error("n"); (got != nil) != want || want && !got.Same(said[of]) {
						t.Errorf("same %v, wildcard first %v, %s: the error of part %v: %v", same, wildFirst, when, of, got)
					}
					if s.Part(of).Known("n") != want || s.Part(of).Owed("n") == want {
						t.Errorf("same %v, wildcard first %v, %s: part %v: known %v", same, wildFirst, when, of, !want)
					}
				}
				if got := s.Error(everything(), "n"); (got != nil) != wild {
					t.Errorf("same %v, wildcard first %v, %s: to the wildcard it is %v", same, wildFirst, when, got)
				}
			}
			b.Apply(Update{Wildcard: wildFirst, Errors: []*ResourceError{said[wildFirst]}})
			is("the first", wildFirst, !wildFirst)
			before := s
			b.Apply(Update{Wildcard: !wildFirst, Errors: []*ResourceError{said[!wildFirst]}})
			is("both", true, true)
			if same && s.Error(byName("n"), "n") != before.Error(byName("n"), "n") {
				t.Error("who was told is told something else")
			}
			if wildFirst {
				b.Apply(Update{Wildcard: true, Removed: []string{"n"}})
				is("the wildcard's goes", false, true)
			} else {
				b.ForgetBut(NewNameSet(), "n")
				is("the name is forgotten", true, false)
				b.EndWildcard()
				is("the wildcard ends", false, false)
			}
			b.Apply(Update{Changed: []*Resource{newRes(t, ClusterType, "n", "")}})
			if s, _ = b.Snapshot(s, 1); s.Failed() != 0 || b.errorBytes != 0 {
				t.Errorf("%d kept, of %d bytes, after a resource", s.Failed(), b.errorBytes)
			}
		}
	}
}

func TestP39_ErrorsAreBounded(t *testing.T) {
	b := NewBuilder(TypeOf(EndpointType))
	text := strings.Repeat("x", maxErrorBytes-100)
	for i := range 2 * maxErrorsBytes / maxErrorBytes {
		b.Apply(Update{Errors: []*ResourceError{failure(t, fmt.Sprint(i), codes.Internal, text)}})
	}
	s, _ := b.Snapshot(nil, 1)
	if b.errorBytes > maxErrorsBytes || s.Failed() > maxErrorsBytes/maxErrorBytes*11/10 || s.Failed() == 0 {
		t.Errorf("%d bytes in %d", b.errorBytes, s.Failed())
	}
	if n := b.NoRoom(); n != 2*maxErrorsBytes/maxErrorBytes-s.Failed() || b.NoRoom() != 0 {
		t.Errorf("%d had no room", n)
	}
	// One that takes another's place has its room.
	if news, kept := b.fail(failure(t, "0", codes.Internal, text[1:]), false); !news || !kept {
		t.Error("no room for a newer one")
	}
}

// A fault of resource_errors is found before those of resources are looked at.
func TestP18_UnreadableErrors(t *testing.T) {
	_, err := ParseResponse(SotW, wire(4, string(widget), 7, []byte{0xff}, 2, anyWire(widget, wire(2, "nameless"))))
	if !errors.Is(err, ErrUnreadable) {
		t.Errorf("%v", err)
	}
}
