package fanout

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	xdscorev3 "github.com/cncf/xds/go/xds/core/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"xdsrelay/config"
	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/fanout/subscriber/subscribertest"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

const itself = "node.id in peer.uri_sans"

// By default Secrets are given only to clients over mTLS for which an identity rule holds. Other
// clients are refused on the service of Secrets. On the aggregated service their other types go on.
func TestP6_SecretsOnlyToProvenIdentities(t *testing.T) {
	c := newCerts(t)
	const id = "spiffe://test/n"
	proves := c.client(tlstest.URI(id))
	listeners := map[string]struct {
		tls      *tls.Config
		identity string
		dial     *tls.Config
		proven   bool
		lacks    string
	}{
		"plaintext":               {nil, "", nil, false, "the connection has no TLS"},
		"plaintext with identity": {nil, "true", nil, false, "the connection has no TLS"},
		"TLS":                     {c.server(false), "", proves, false, "the client has no certificate"},
		"TLS with identity":       {c.server(false), "true", proves, false, "the client has no certificate"},
		"mTLS":                    {c.server(true), "", proves, false, "without downstream.identity, neither a certificate nor a token proves the node"},
		"mTLS with identity":      {c.server(true), itself, proves, true, ""},
	}
	r := newServerFixture(t, nil)
	r.groups.Group("edge").Publish(update(t, xds.SecretType, "s"), update(t, xds.RuntimeType, "r"))
	var mu sync.Mutex
	secrets := 0 // that were joined
	r.groups.Refuse = func(j subscribertest.Join) *refusal.Refusal {
		mu.Lock()
		defer mu.Unlock()
		if j.Type == xds.SecretType {
			secrets++
		}
		return nil
	}
	joined := func() int {
		mu.Lock()
		defer mu.Unlock()
		return secrets
	}
	n := &corev3.Node{Id: id, Cluster: "edge"}
	refused := 0
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		for _, mode := range []string{config.SecretsMTLS, config.SecretsAllow, config.SecretsDeny} {
			for where, l := range listeners {
				given := mode == config.SecretsAllow || mode == config.SecretsMTLS && l.proven
				t.Run(mode+"/"+where, func(t *testing.T) {
					policy := &listener.Policy{Key: "downstream", TLS: l.tls, Secrets: mode}
					if l.identity != "" {
						policy.Identity = mustIdentity(t, l.identity)
					}
					r := r.with(t)
					conn := r.dialTo(r.listen(policy), l.dial)
					before := joined()

					ads := r.ads(conn, v)
					ads.ask(n, xds.SecretType, "s")
					ads.ask(nil, xds.RuntimeType, "r") // handled and sent after
					if given {
						ads.gets(xds.SecretType)
					}
					ads.gets(xds.RuntimeType)

					sds := r.sds(conn, v)
					sds.ask(n, xds.SecretType, "s")
					if given {
						sds.gets(xds.SecretType)
						if joined() != before+2 {
							t.Errorf("%d joins, want 2", joined()-before)
						}
						return
					}
					sds.ask(nil, xds.RuntimeType, "r") // would end a stream that goes on (P2)
					why := l.lacks
					if mode == config.SecretsDeny {
						why = "the listener serves no Secrets"
					}
					if said := sds.ended(codes.PermissionDenied); !strings.Contains(said, why) {
						t.Errorf("%q does not say %q", said, why)
					}
					if joined() != before {
						t.Error("joined, so that it would be answered some time")
					}
					refused += 2
					r.counted(telemetry.Secrets, refused)
				})
			}
		}
	})
}

// The message of a client that refuses a Secret is neither kept nor logged, since it may quote the
// Secret.
func TestP6_RefusedSecretsAreNotQuoted(t *testing.T) {
	r := newServerFixture(t, nil)
	r.groups.Group("edge").Publish(update(t, xds.SecretType, "s"), update(t, xds.RuntimeType, "r"))
	addr := r.listen(&listener.Policy{Key: "downstream", Secrets: config.SecretsAllow})
	for i, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			r := r.with(t)
			p := r.ads(r.dialTo(addr, nil), v)
			p.ask(node("n"), xds.SecretType, "s")
			nonce := p.gets(xds.SecretType)
			p.Nack(string(xds.SecretType), nonce, `private_key { inline_string: "top-secret" }`, "s")
			p.ask(nil, xds.RuntimeType, "r")
			nonce = p.gets(xds.RuntimeType)
			p.Nack(string(xds.RuntimeType), nonce, "plainly wrong", "r")
			r.eventually(func() bool {
				r.groups.Mu.Lock()
				defer r.groups.Mu.Unlock()
				return len(r.groups.Nacks) == 2*(i+1)
			})
		})
	}
	r.eventually(func() bool { return strings.Count(r.log.String(), "client rejected a response") >= 2 }) // of each type; both variants have the same version
	shown := r.log.String() + fmt.Sprint(r.srv.Clients(), r.groups.Nacks)
	if strings.Contains(shown, "top-secret") || strings.Count(shown, "may contain the Secret") < 3 || !strings.Contains(shown, "plainly wrong") {
		t.Error(shown)
	}
}

// A client is refused for which the identity rule is false or has an error,
// before it is given anything.
func TestP6_IdentityRefuses(t *testing.T) {
	c := newCerts(t)
	r := newServerFixture(t, nil)
	r.groups.Group("edge").Publish(update(t, xds.ClusterType, "a"))
	mutual := r.listen(&listener.Policy{Key: "downstream", TLS: c.server(true), Identity: mustIdentity(t, itself), Secrets: config.SecretsMTLS})
	tenant := r.listen(&listener.Policy{Key: "downstream.listeners[1]", Identity: mustIdentity(t, `node.metadata.tenant == "a"`)})
	var mu sync.Mutex
	joins := 0
	r.groups.Refuse = func(subscribertest.Join) *refusal.Refusal {
		mu.Lock()
		defer mu.Unlock()
		joins++
		return nil
	}
	refused := 0
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		r := r.with(t)
		mu.Lock()
		joins = 0
		mu.Unlock()
		conn := r.dialTo(mutual, c.client(tlstest.URI("spiffe://test/a"), tlstest.URI("spiffe://test/b")))
		for _, own := range []string{"spiffe://test/a", "spiffe://test/b"} {
			p := r.ads(conn, v)
			p.ask(&corev3.Node{Id: own, Cluster: "edge"}, xds.ClusterType)
			p.gets(xds.ClusterType)
		}
		for _, other := range []string{"", "spiffe://test/c", "spiffe://test/", "SPIFFE://test/a"} {
			p := r.ads(conn, v)
			p.ask(&corev3.Node{Id: other, Cluster: "edge"}, xds.ClusterType)
			if said := p.ended(codes.PermissionDenied); !strings.Contains(said, "downstream.identity: node ") || !strings.Contains(said, "the rule is false") {
				t.Errorf("%q: %v", other, said)
			}
			refused++
		}
		p := r.ads(r.dialTo(tenant, nil), v)
		p.ask(node("n"), xds.ClusterType)
		if said := p.ended(codes.PermissionDenied); !strings.Contains(said, "downstream.listeners[1].identity: ") || !strings.Contains(said, "no such key: tenant") {
			t.Errorf("an error of the rule: %v", said)
		}
		refused++
		r.counted(telemetry.Identity, refused)
		mu.Lock()
		defer mu.Unlock()
		if joins != 2 {
			t.Errorf("%d joined, want 2", joins)
		}
	})
}

// A node that dynamic parameters make another is held against the rule again; a
// node that changes nothing is not.
func TestP6_IdentityOfChangedNodes(t *testing.T) {
	r := newServerFixture(t, nil)
	r.groups.Group("edge").Publish(update(t, xds.ClusterType, "a"), update(t, xds.EndpointType, "a"), update(t, xds.RuntimeType, "a"))
	addr := r.listen(&listener.Policy{Key: "downstream", Identity: mustIdentity(t, `node.id == "n" && !("t" in node.dynamic_parameters)`)})
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		r := r.with(t)
		p := r.ads(r.dialTo(addr, nil), v)
		p.ask(node("n"), xds.ClusterType)
		p.gets(xds.ClusterType)
		p.ask(node("other"), xds.EndpointType, "a") // changes nothing (P1)
		p.gets(xds.EndpointType)
		later := node("n")
		later.DynamicParameters = map[string]*xdscorev3.ContextParams{"t": {}}
		p.ask(later, xds.RuntimeType, "a")
		p.ended(codes.PermissionDenied)
	})
}

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
	before := r.BeginAs(xdstest.Context(t), r.HTTP("http1"), in("edge"), xds.ClusterType, "")
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
