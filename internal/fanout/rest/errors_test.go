package rest

import (
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"

	"xdsrelay/internal/fanout/session/sessiontest"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
	"xdsrelay/internal/xdstest"
)

// An error of a name that a poll asks for is news, and is part of the answer. Errors of other names
// are not. An error alone is no answer of a type for which clients reject empty answers.
func TestP39_ErrorsInPolls(t *testing.T) {
	r := newREST(t, nil)
	g := r.groups.Group("edge")
	c := r.HTTP("http1")
	g.Publish(update(t, xds.EndpointType, "a"))
	m := r.Response(r.Ask(c, xds.EndpointType, "", "a", "b"))
	if len(m.ResourceErrors) > 0 {
		t.Fatalf("errors: %v", m.ResourceErrors)
	}
	held := r.Begin(xdstest.Context(t), c, xds.EndpointType, m.VersionInfo, "a", "b")
	r.waiting(1)

	// Details of a type that this program does not know have no JSON.
	said := func(name string, details ...*anypb.Any) *xds.ResourceError {
		return sessiontest.New(t, xds.EndpointType).Parse(&discoveryv3.DeltaDiscoveryResponse{
			TypeUrl: string(xds.EndpointType), ResourceErrors: []*discoveryv3.ResourceError{{
				ResourceName: &discoveryv3.ResourceName{Name: name},
				ErrorDetail:  &statuspb.Status{Code: int32(codes.PermissionDenied), Message: "no " + name, Details: details},
			}},
		}).Errors[0]
	}
	g.Publish(snapshot.Update{Type: xds.EndpointType, Errors: []*xds.ResourceError{said("c")}})
	g.Publish(snapshot.Update{Type: xds.EndpointType, Errors: []*xds.ResourceError{said("b", &anypb.Any{TypeUrl: "acme/X", Value: []byte{8, 1}})}})
	got := <-held
	if text := r.Holds(got); text != "a " {
		t.Errorf("holds %q", text)
	}
	m = r.Response(got)
	if len(m.ResourceErrors) != 1 || m.ResourceErrors[0].ResourceName.GetName() != "b" ||
		m.ResourceErrors[0].ErrorDetail.GetCode() != int32(codes.PermissionDenied) || m.ResourceErrors[0].ErrorDetail.GetMessage() != "no b" {
		t.Errorf("errors: %v", m.ResourceErrors)
	}

	// The next resource ends it.
	g.Publish(update(t, xds.EndpointType, "b"))
	if m = r.Response(r.Ask(c, xds.EndpointType, m.VersionInfo, "a", "b")); len(m.ResourceErrors) > 0 || len(m.Resources) != 2 {
		t.Errorf("%v", m)
	}
	w := sessiontest.New(t, xds.SecretType)
	w.Fail(false, "a")
	if ready, _ := answerFor(w.Cur, wants(false, "a")); ready {
		t.Error("an error alone is an answer")
	}
}
