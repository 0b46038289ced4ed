package conformance

import (
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
)

// resource_errors are kept by name. Clients that subscribe to the name receive them, also later
// ones. They end with the next resource.
func TestP39_ResourceErrors(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		cl, up := c.byHand(rds, "a", "b")
		var errs []*discoveryv3.ResourceError
		for _, n := range []string{"b", "unrequested"} {
			errs = append(errs, &discoveryv3.ResourceError{ResourceName: &discoveryv3.ResourceName{Name: n},
				ErrorDetail: &rpcstatus.Status{Code: int32(codes.PermissionDenied), Message: "not for you"}})
		}
		m := up.response(rds, "1", "a=1")
		switch r := m.(type) {
		case *discoveryv3.DeltaDiscoveryResponse:
			r.ResourceErrors = errs
		case *discoveryv3.DiscoveryResponse:
			r.ResourceErrors = errs
		}
		up.send(c, m)
		up.acked(c, rds, "1")
		a := cl.take(rds, "a=1")
		if got := a.errors(); got != "b" {
			c.Errorf("errors for %q, want for b", got)
		}
		late := c.client("late")
		late.sub(rds, "b")
		if a := late.take(rds, ""); a.errors() != "b" {
			c.Errorf("the late joiner received errors for %q, want for b", a.errors())
		}
		up.reply(c, rds, "2", "b=1")
		if a := cl.take(rds, "b=1"); a.errors() != "" {
			c.Errorf("the error of %q outlived the resource", a.errors())
		}
		late.take(rds, "b=1")
		later := c.client("later")
		later.sub(rds, "a", "b")
		if a := later.take(rds, "a=1 b=1"); a.errors() != "" {
			c.Errorf("the error of %q outlived the resource", a.errors())
		}
	})
}

// errors are the names with an error in a response.
func (a answer) errors() string {
	var list []*discoveryv3.ResourceError
	switch r := a.msg.(type) {
	case *discoveryv3.DeltaDiscoveryResponse:
		list = r.ResourceErrors
	case *discoveryv3.DiscoveryResponse:
		list = r.ResourceErrors
	}
	out := ""
	for _, e := range list {
		out += e.GetResourceName().GetName()
	}
	return out
}

// With NOT_FOUND the origin states an absence.
func TestP25_P39_NotFound(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		cl, up := c.byHand(rds, "a", "b")
		missing := []*discoveryv3.ResourceError{{ResourceName: &discoveryv3.ResourceName{Name: "b"},
			ErrorDetail: &rpcstatus.Status{Code: int32(codes.NotFound), Message: "no such"}}}
		m := up.response(rds, "1", "a=1")
		switch r := m.(type) {
		case *discoveryv3.DeltaDiscoveryResponse:
			r.ResourceErrors = missing
		case *discoveryv3.DiscoveryResponse:
			r.ResourceErrors = missing
		}
		up.send(c, m)
		up.acked(c, rds, "1")
		want := "a=1"
		if cl.delta {
			want = "a=1 -b"
		}
		if a := cl.take(rds, want); a.errors() != "b" {
			c.Errorf("errors for %q, want for b", a.errors())
		}
		up.reply(c, rds, "2", "b=1")
		cl.take(rds, "b=1")
	})
}
