package xds

import (
	"errors"
	"slices"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// resourceErrorOf returns a parsed element of resource_errors.
func resourceErrorOf(t testing.TB, name string, code codes.Code, message string) *ResourceError {
	t.Helper()
	e, err := parseResourceError(marshal(t, &discoveryv3.ResourceError{
		ResourceName: &discoveryv3.ResourceName{Name: name}, ErrorDetail: &statuspb.Status{Code: int32(code), Message: message}}))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// resource_errors are read in both variants and sent unchanged (P39).
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
			b := ResponseBody{ResourceFormat: ResourceFormat{Variant: v}, Type: widget, Errors: r.Errors}
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
				wantError(t, what, err, bad.fault)
				if r.Nonce != "n" || r.TypeURL != widget {
					t.Errorf("%s: nothing to NACK with: %+v", what, r)
				}
			}
		})
	}
}

func TestP39_LongErrorsAreCut(t *testing.T) {
	e := resourceErrorOf(t, "a", codes.Internal, "ö"+strings.Repeat("ü", maxErrorBytes))
	m := new(discoveryv3.ResourceError)
	if err := proto.Unmarshal(e.wire, m); err != nil {
		t.Fatal(err)
	}
	if e.Size() > 5<<10 || m.ResourceName.Name != "a" || m.ErrorDetail.Code != int32(codes.Internal) || len(m.ErrorDetail.Message) < maxErrorTextBytes/2 {
		t.Errorf("%d bytes: %v", e.Size(), m.ErrorDetail.Code)
	}
}

// NOT_FOUND means absent, except for what a whole wildcard covers (P25).
func TestP25_NotFoundIsAbsence(t *testing.T) {
	for name, want := range map[string]bool{"a": true, "": false, "*": false} {
		if resourceErrorOf(t, name, codes.NotFound, "").Absent() != want {
			t.Errorf("%q", name)
		}
	}
	if resourceErrorOf(t, "a", codes.Unavailable, "").Absent() {
		t.Error("UNAVAILABLE")
	}
}

// A fault in resource_errors is reported before faults of resources (P18).
func TestP18_UnreadableErrors(t *testing.T) {
	_, err := ParseResponse(SotW, wire(4, string(widget), 7, []byte{0xff}, 2, anyWire(widget, wire(2, "nameless"))))
	if !errors.Is(err, ErrUnreadable) {
		t.Errorf("%v", err)
	}
}
