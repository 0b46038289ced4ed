package conformance

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"xdsrelay/internal/xdstest"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// failing sends a response with resources and with errors, each "name code".
func (u *upstream) failing(t testing.TB, k kind, nonce string, things []string, errors ...string) {
	t.Helper()
	m := u.response(k, nonce, things...)
	var list []*discoveryv3.ResourceError
	for _, e := range errors {
		name, code, _ := strings.Cut(e, " ")
		var c codes.Code
		if err := c.UnmarshalJSON([]byte(fmt.Sprintf("%q", code))); err != nil {
			t.Fatal(err)
		}
		list = append(list, &discoveryv3.ResourceError{ResourceName: &discoveryv3.ResourceName{Name: name},
			ErrorDetail: &statuspb.Status{Code: int32(c), Message: "said the origin in " + nonce}})
	}
	switch r := m.(type) {
	case *discoveryv3.DiscoveryResponse:
		r.ResourceErrors = list
	case *discoveryv3.DeltaDiscoveryResponse:
		r.ResourceErrors = list
	}
	u.send(t, m)
	u.acked(t, k, nonce)
}

// failures formats the errors of a response.
func (a answer) failures() string {
	var out []string
	for _, e := range a.msg.(interface {
		GetResourceErrors() []*discoveryv3.ResourceError
	}).GetResourceErrors() {
		out = append(out, e.GetResourceName().GetName()+" "+codes.Code(e.GetErrorDetail().GetCode()).String())
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// takeError takes a response with only an error.
func (c *client) takeError(k kind, want string) answer {
	c.t.Helper()
	a := c.next(k)
	if a.failures() != want || a.String() != "" {
		c.t.Fatalf("%s holds %q and errors %q, want errors %q alone", k.short(), a, a.failures(), want)
	}
	c.ack(a)
	return a
}

// resource_errors are kept per name, and sent to clients that subscribe to it and to late joiners.
// They end with the next resource.
func TestP39_ResourceErrors(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		c.site.manual(rds)
		cl := c.client("one")
		cl.sub(rds, "a", "b")
		other := c.client("other")
		other.sub(rds, "b")
		c.site.asksFor(c, rds, "a", "b")
		up := c.site.stream(c, 1)
		up.failing(c, rds, "1", nil, "a PERMISSION_DENIED", "unrequested PERMISSION_DENIED")
		got := cl.takeError(rds, "a PermissionDenied")
		sent := got.msg.(interface {
			GetResourceErrors() []*discoveryv3.ResourceError
		}).GetResourceErrors()[0]
		if want := (&statuspb.Status{Code: int32(codes.PermissionDenied), Message: "said the origin in 1"}); !proto.Equal(sent.ErrorDetail, want) {
			c.Errorf("it came as %v", sent)
		}
		late := c.client("late")
		late.sub(rds, "a")
		late.takeError(rds, "a PermissionDenied")

		up.failing(c, rds, "2", []string{"b=1"})
		other.take(rds, "b=1") // with nothing before it
		cl.take(rds, "b=1")
		up.failing(c, rds, "3", []string{"a=1"})
		for _, some := range []*client{cl, late} {
			if a := some.take(rds, "a=1"); a.failures() != "" {
				c.Errorf("the error %q outlived the resource", a.failures())
			}
		}
		if got := late.state(rds); got.answers != 2 {
			c.Errorf("%d responses", got.answers)
		}
		// An error for a held resource, beside another resource: the resource stays. The same resource
		// ends the error.
		up.failing(c, rds, "4", []string{"b=2"}, "a UNAVAILABLE")
		if a := cl.take(rds, "b=2"); a.failures() != "a Unavailable" {
			c.Errorf("errors %q", a.failures())
		}
		late.takeError(rds, "a Unavailable")
		later := c.client("later")
		later.sub(rds, "a")
		if a := later.take(rds, "a=1"); a.failures() != "" {
			c.Errorf("the resource was received with its error")
		}
		later.takeError(rds, "a Unavailable")
		up.failing(c, rds, "5", []string{"a=1"})
		for _, some := range []*client{cl, late, later} {
			some.take(rds, "a=1")
		}
		last := c.client("last")
		last.sub(rds, "a", "b")
		if a := last.take(rds, "a=1 b=2"); a.failures() != "" {
			c.Errorf("the error %q outlived the resource", a.failures())
		}
	})
}

// NOT_FOUND is the origin's statement that a resource does not exist, beside a resource and alone.
func TestP25_P39_NotFound(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		cl, up := c.byHand(rds, "a", "b")
		absent := func(nonce, with, name string) {
			c.Helper()
			up.failing(c, rds, nonce, strings.Fields(with), name+" NOT_FOUND")
			want := with
			if cl.delta {
				want = strings.TrimSpace(with + " -" + name)
			}
			if a := cl.take(rds, want); a.failures() != name+" NotFound" {
				c.Errorf("errors %q", a.failures())
			}
			up.failing(c, rds, nonce+"-made", []string{name + "=1"})
			cl.take(rds, name+"=1")
		}
		absent("1", "a=1", "b")
		cl.sub(rds, "c")
		c.site.asksFor(c, rds, "a", "b", "c")
		absent("2", "", "c")
	})
}

// A full-state response with an error in place of a resource does not remove the resource.
func TestP39_ErrorIsNoRemoval(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		cl, up := c.byHand(cds)
		up.failing(c, cds, "1", []string{"a=1", "b=1"})
		cl.take(cds, "a=1 b=1")
		up.failing(c, cds, "2", []string{"b=1"}, "a INTERNAL")
		got := cl.next(cds)
		cl.ack(got)
		want := ""
		if cl.wholeState(cds) {
			want = "a=1 b=1"
		}
		if got.String() != want || got.failures() != "a Internal" {
			c.Errorf("it holds %q and errors %q, want %q", got, got.failures(), want)
		}
	})
}

// With versions: origin, a resource has the version that its origin sent. If the origin sent none,
// the version comes from the content.
func TestP61_VersionsOfTheOrigin(t *testing.T) {
	eachOwn(t, downDelta, func(t *testing.T, at place) {
		control := newTestControl(t)
		c := on(t, at, own(t, at.up, xdstest.Config{"downstream.versions": "origin"}, control.addr), control)
		cl, up := c.byHand(rds, "a", "b")
		res := func(name, version, value string) *discoveryv3.Resource {
			return &discoveryv3.Resource{Name: name, Version: version, Resource: body(rds, name, value)}
		}
		up.wrapped(c, rds, "1", res("a", "first", "1"), res("b", "", "1"))
		got := cl.take(rds, "a=1 b=1")
		if v := got.wraps["a"].Version; v != "first" {
			t.Errorf("the version is %q, want the origin's", v)
		}
		content := got.wraps["b"].Version
		if content == "" {
			t.Error("where the origin gave none there is none")
		}
		// Equal content under another version is no change. A new client receives the version that
		// the others have. A client that resumes with it has it already.
		up.wrapped(c, rds, "2", res("a", "second", "1"))
		late := c.client("late")
		late.tell(rds, rawRequest{names: []string{"a", "b"}, resumed: map[string]string{"a": "first", "b": "first"}})
		if v := late.take(rds, "b=1").wraps["b"].Version; v != content {
			t.Errorf("version %q, want %q", v, content)
		}
		up.wrapped(c, rds, "3", res("a", "third", "2"))
		for _, some := range []*client{cl, late} {
			if v := some.take(rds, "a=2").wraps["a"].Version; v != "third" {
				t.Errorf("the version is %q, want the origin's", v)
			}
		}
		if n := cl.state(rds).answers; n != 2 {
			t.Errorf("%d responses", n)
		}
	})
}
