package fanout

import (
	"net/http"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"xdsrelay/config"
	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/fanout/rest/resttest"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// victims are rules that give every client the key of another one. The first client that asks them
// waits until they are in force. It was admitted before.
type victims struct {
	once        sync.Once
	asked, goOn chan struct{}
}

func newVictims() *victims { return &victims{asked: make(chan struct{}), goOn: make(chan struct{})} }

func (v *victims) key(*corev3.Node, xds.TypeURL) (string, error) {
	v.once.Do(func() { close(v.asked); <-v.goOn })
	return "victim", nil
}

// While rules and policies change together, a client that the new policy does not admit gets no key
// by the new rules. This holds for a client that was admitted before and for one that comes
// meanwhile. Both end at once.
func TestP5_RulesAndPoliciesChangeTogether(t *testing.T) {
	policy := &listener.Policy{Key: "downstream", Secrets: config.SecretsAllow}
	r := newServerFixture(t, nil)
	r.addr = r.listen(policy)
	publishAll(r, "a", "edge", "victim")
	v := newVictims()
	r.groups.SetRules(v.key)
	before := r.delta(nil)
	before.must(&discoveryv3.DeltaDiscoveryRequest{Node: in("edge"), TypeUrl: string(xds.ClusterType)})
	<-v.asked
	policies := []PolicyChange{{Policy: policy, Identity: mustIdentity(t, `node.cluster == "victim"`), Secrets: config.SecretsDeny}}
	r.srv.ChangeRules(policies, func() {
		close(v.goOn)
		if s := before.ends(); s.Code() != codes.PermissionDenied {
			t.Errorf("who was let in before ended with %v %q", s.Code(), s.Message())
		}
		meanwhile := r.delta(nil)
		meanwhile.must(&discoveryv3.DeltaDiscoveryRequest{Node: in("edge"), TypeUrl: string(xds.ClusterType)})
		if s := meanwhile.ends(); s.Code() != codes.PermissionDenied {
			t.Errorf("who came meanwhile ended with %v %q", s.Code(), s.Message())
		}
		secret := r.delta(nil)
		secret.must(&discoveryv3.DeltaDiscoveryRequest{Node: in("victim"), TypeUrl: string(xds.SecretType)})
		r.counted(telemetry.Secrets, 1)
	}, time.Hour)
	r.counted(telemetry.Identity, 2)
	r.opened("victim")
}

// The same holds for polls.
func TestP5_RulesAndPoliciesChangeTogetherForPolls(t *testing.T) {
	policy := &listener.Policy{Key: "downstream", Secrets: config.SecretsAllow}
	r := newREST(t, nil, policy)
	publishAll(r.serverFixture, "a", "edge", "victim")
	v := newVictims()
	r.groups.SetRules(v.key)
	before := make(chan *resttest.Reply, 1)
	go func() {
		got, err := r.Post(xdstest.Context(t), r.HTTP("http1"), "/v3/discovery:clusters", resttest.Body(t, resttest.Request(in("edge"), xds.ClusterType, "")))
		if err != nil {
			t.Error(err)
		}
		before <- got
	}()
	<-v.asked
	policies := []PolicyChange{{Policy: policy, Identity: mustIdentity(t, `node.cluster == "victim"`), Secrets: config.SecretsAllow}}
	r.srv.ChangeRules(policies, func() {
		close(v.goOn)
		if f := r.Refused(<-before, http.StatusForbidden); f.Reason != string(telemetry.Identity) {
			t.Errorf("%+v", f)
		}
	}, time.Hour)
}

// A client that the new policy excludes gets nothing from the moment of the change, also before the
// relay has checked all clients. It ends as soon as there is something to send.
func TestP6_ExcludedClientGetsNothing(t *testing.T) {
	policy := &listener.Policy{Key: "downstream", Secrets: config.SecretsAllow}
	r := newServerFixture(t, nil)
	r.addr = r.listen(policy)
	publishAll(r, "a", "edge")
	c := r.delta(nil)
	c.must(&discoveryv3.DeltaDiscoveryRequest{Node: in("edge"), TypeUrl: string(xds.ClusterType)})
	xdstest.Must(c.Recv())(t)
	policies := []PolicyChange{{Policy: policy, Identity: mustIdentity(t, `node.cluster != "edge"`), Secrets: config.SecretsAllow}}
	r.srv.ChangeRules(policies, func() {
		publishAll(r, "b", "edge")
		if got, err := c.Recv(); status.Code(err) != codes.PermissionDenied {
			t.Errorf("the client gets %v, %v", got, err)
		}
	}, time.Hour)
}
