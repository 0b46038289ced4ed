package conformance

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"xdsrelay/internal/xdstest"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// longPoll is how long these relays hold a poll without changes.
const longPoll = 400 * time.Millisecond

// polled relays answer polls as well.
func polled(more xdstest.Config) xdstest.Config {
	s := xdstest.Config{"downstream.rest_address": "127.0.0.1:0", "downstream.long_poll": longPoll.String()}
	for k, v := range more {
		s[k] = v
	}
	return s
}

// eachPolled runs a test against a relay that answers polls, for both variants
// upstream.
func eachPolled(t *testing.T, more xdstest.Config, test func(t *testing.T, p *poller)) {
	t.Parallel()
	for _, up := range []string{"sotw", "delta"} {
		t.Run(up, func(t *testing.T) {
			t.Parallel()
			control := newTestControl(t)
			r := own(t, up, polled(more), control.addr)
			c := on(t, place{up: up, down: "sotw", ads: true}, r, control)
			test(t, &poller{trial: c, base: "http://" + r.RESTAddress})
		})
	}
}

// poller is a client that polls.
type poller struct {
	*trial
	base string
}

// reply is the answer to a poll. Resources are by name.
type reply struct {
	status    int
	text      string
	version   string
	typeURL   string
	resources map[string]map[string]any
}

var http1 = &http.Client{Timeout: xdstest.Patience, Transport: &http.Transport{DisableKeepAlives: true}}

// poll posts handwritten JSON to a path.
func (p *poller) poll(t testing.TB, path, request string) reply {
	t.Helper()
	resp, err := http1.Post(p.base+"/v3/discovery:"+path, "application/json", strings.NewReader(request))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }() // read to its end
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	out := reply{status: resp.StatusCode, text: string(body), resources: make(map[string]map[string]any)}
	if resp.StatusCode != http.StatusOK {
		return out
	}
	var m struct {
		VersionInfo string           `json:"versionInfo"`
		TypeURL     string           `json:"typeUrl"`
		Resources   []map[string]any `json:"resources"`
	}
	if err := json.Unmarshal(body, &m); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	out.version, out.typeURL = m.VersionInfo, m.TypeURL
	for _, r := range m.Resources {
		name, _ := r["name"].(string)
		if name == "" {
			name, _ = r["clusterName"].(string)
		}
		out.resources[name] = r
	}
	return out
}

// news polls until the answer is not 304: a slow machine may need longer than longPoll for an answer
// of the origin.
func (p *poller) news(t testing.TB, path, request string) reply {
	t.Helper()
	for {
		if r := p.poll(t, path, request); r.status != http.StatusNotModified {
			return r
		}
	}
}

// request is a DiscoveryRequest of the trial's node.
func (p *poller) request(version string, names ...string) string {
	list, err := json.Marshal(append([]string{}, names...))
	if err != nil {
		p.Fatal(err)
	}
	return fmt.Sprintf(`{"node": {"id": "poller", "cluster": %q}, "version_info": %q, "resource_names": %s}`, p.key, version, list)
}

// answerAll makes the origin answer with these resources.
func (p *poller) answerAll(t testing.TB, k kind, version string, resources ...proto.Message) {
	t.Helper()
	p.site.request(t, k, 1)
	up := p.site.stream(t, 1)
	var m proto.Message
	delta := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: string(k), SystemVersionInfo: version, Nonce: version}
	sotw := &discoveryv3.DiscoveryResponse{TypeUrl: string(k), VersionInfo: version, Nonce: version}
	for _, r := range resources {
		a, err := anypb.New(r)
		if err != nil {
			t.Fatal(err)
		}
		delta.Resources = append(delta.Resources, &discoveryv3.Resource{Name: field(a.Value, 1), Version: version, Resource: a})
		sotw.Resources = append(sotw.Resources, a)
	}
	if m = sotw; up.delta {
		m = delta
	}
	up.send(t, m)
	up.acked(t, k, version)
}

// Each type with a path is answered as JSON.
func TestP70_EveryPath(t *testing.T) {
	eachPolled(t, nil, func(t *testing.T, p *poller) {
		for _, of := range []struct {
			path string
			k    kind
			m    proto.Message
		}{
			{"listeners", lds, &listenerv3.Listener{Name: "a", StatPrefix: "s"}},
			{"routes", rds, &routev3.RouteConfiguration{Name: "a"}},
			{"scoped-routes", srds, &routev3.ScopedRouteConfiguration{Name: "a", RouteConfigurationName: "s"}},
			{"clusters", cds, &clusterv3.Cluster{Name: "a", AltStatName: "s"}},
			{"endpoints", eds, &endpointv3.ClusterLoadAssignment{ClusterName: "a"}},
			{"secrets", sds, &tlsv3.Secret{Name: "a"}},
			{"runtime", rtds, &runtimev3.Runtime{Name: "a"}},
			{"extension_configs", ecds, &corev3.TypedExtensionConfig{Name: "a"}},
		} {
			p.site.manual(of.k)
			done := make(chan reply)
			go func() { done <- p.news(t, of.path, p.request("", "a")) }()
			p.answerAll(t, of.k, "v1", of.m)
			r := <-done
			if r.status != http.StatusOK || r.typeURL != string(of.k) || r.resources["a"]["@type"] != string(of.k) {
				t.Errorf("%s: %d %s", of.path, r.status, r.text)
			}
		}
		if r := p.poll(t, "aggregated", p.request("")); r.status != http.StatusNotFound {
			t.Errorf("ADS over REST: %d", r.status)
		}
	})
}

// A poll with the current version is held until something changes or long_poll ends (304). Versions
// are those of the requested names.
func TestP71_LongPoll(t *testing.T) {
	eachPolled(t, nil, func(t *testing.T, p *poller) {
		p.site.manual(cds)
		cluster := func(name, stat string) *clusterv3.Cluster {
			return &clusterv3.Cluster{Name: name, AltStatName: stat}
		}
		done := make(chan reply, 1)
		go func() { done <- p.news(t, "clusters", p.request("", "a", "b")) }()
		p.answerAll(t, cds, "v1", cluster("a", "1"), cluster("b", "1"))
		first := <-done
		if len(first.resources) != 2 || first.version == "" {
			t.Fatalf("%d %s", first.status, first.text)
		}
		one := p.poll(t, "clusters", p.request("", "a"))
		if len(one.resources) != 1 || one.version == first.version {
			t.Errorf("of one name: %d %s, and the version of two is %s", one.status, one.text, first.version)
		}
		start := time.Now()
		if r := p.poll(t, "clusters", p.request(first.version, "a", "b")); r.status != http.StatusNotModified {
			t.Errorf("without news: %d %s", r.status, r.text)
		}
		if held := time.Since(start); held < longPoll {
			t.Errorf("the poll was held for %v only", held)
		}
		go func() { done <- p.news(t, "clusters", p.request(first.version, "a", "b")) }()
		p.answerAll(t, cds, "v2", cluster("a", "2"), cluster("b", "1"))
		r := <-done
		if r.status != http.StatusOK || r.resources["a"]["altStatName"] != "2" || r.resources["b"]["altStatName"] != "1" || r.version == first.version {
			t.Errorf("after a change: %d %s", r.status, r.text)
		}
		// The origin's version does not matter: equal content has the same version.
		p.answerAll(t, cds, "v3", cluster("a", "1"), cluster("b", "1"))
		xdstest.Eventually(t, "the content of before", func() error {
			if now := p.poll(t, "clusters", p.request("", "a", "b")); now.version != first.version {
				return errorf("version %s, want %s", now.version, first.version)
			}
			return nil
		})
	})
}

// A poll that cannot be answered gets a reason.
func TestP72_Refusals(t *testing.T) {
	eachPolled(t, xdstest.Config{"downstream.secrets": "mtls"}, func(t *testing.T, p *poller) {
		node := fmt.Sprintf(`"node": {"id": "n", "cluster": %q}`, p.key)
		for _, of := range []struct {
			what, path, request string
			status              int
		}{
			{"bad JSON", "clusters", `{"node": `, 400},
			{"no node", "clusters", `{"resource_names": ["a"]}`, 400},
			{"another type", "clusters", `{` + node + `, "type_url": "` + string(eds) + `"}`, 400},
			{"an unmapped node", "clusters", `{"node": {"id": "n", "cluster": "c", "metadata": {"` + unmapped + `": true}}}`, 403},
			{"Secrets", "secrets", `{` + node + `, "resource_names": ["s"]}`, 403},
		} {
			r := p.poll(t, of.path, of.request)
			if r.status != of.status || strings.TrimSpace(r.text) == "" {
				t.Errorf("%s: %d %q, want %d and the reason", of.what, r.status, r.text, of.status)
			}
		}
		p.site.leave()
		if r := p.news(t, "clusters", p.request("")); r.status != 503 || strings.TrimSpace(r.text) == "" {
			t.Errorf("nothing held and no origin: %d %q", r.status, r.text)
		}
	})
}
