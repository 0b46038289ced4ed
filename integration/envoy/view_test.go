package envoy

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"xdsrelay/internal/xdstest"
)

// What an Envoy has, and what the relay says about it.

// holds returns the active clusters, listeners and routes as JSON, by type and
// name.
func (e *envoy) holds() (map[string]string, error) {
	all, err := e.dumped()
	if err != nil {
		return nil, err
	}
	out := make(map[string]string)
	for _, h := range all {
		if h.body == nil || h.url != cds && h.url != lds && h.url != rds {
			continue
		}
		text, err := json.Marshal(h.body)
		if err != nil {
			return nil, err
		}
		out[short(h.url)+" "+h.name] = string(text)
	}
	return out, nil
}

// mustHold returns what holds returns.
func (e *envoy) mustHold() map[string]string {
	e.t.Helper()
	all, err := e.holds()
	if err != nil {
		e.t.Fatal(err)
	}
	return all
}

// short is a type's usual short name.
func short(url string) string {
	switch url {
	case cds:
		return "CDS"
	case eds:
		return "EDS"
	case lds:
		return "LDS"
	case rds:
		return "RDS"
	}
	return url
}

// lostNothing waits until this Envoy holds exactly these resources. It fails
// the test if the Envoy ever removed a cluster or listener.
func (e *envoy) lostNothing(want ...string) {
	e.t.Helper()
	e.waitHolds(want...)
	e.removed(0, 0)
}

// waitHolds waits until this Envoy holds exactly these resources.
func (e *envoy) waitHolds(want ...string) {
	e.t.Helper()
	want = slices.Sorted(slices.Values(want))
	xdstest.Eventually(e.t, e.node+"'s resources", func() error {
		all, err := e.holds()
		if err != nil {
			return err
		}
		if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, want) {
			return fmt.Errorf("%q, want %q", got, want)
		}
		return nil
	})
}

// removed fails the test if this Envoy ever removed another number of clusters
// or listeners.
func (e *envoy) removed(clusters, listeners int) {
	e.t.Helper()
	got, err := e.stats(`(cluster_manager\.cluster_removed|listener_manager\.listener_removed)$`)
	if err != nil {
		e.t.Fatal(err)
	}
	want := map[string]int{"cluster_manager.cluster_removed": clusters, "listener_manager.listener_removed": listeners}
	if !maps.Equal(got, want) {
		e.t.Errorf("%s removed %v, want %v", e.node, got, want)
	}
}

// webHeld is what an Envoy holds of web.
var webHeld = []string{"CDS web", "LDS in", "RDS in"}

// typeStatus is one type of one client in the relay's /clients.
type typeStatus struct {
	Type  string `json:"type"`
	State string `json:"state"`
	Nack  *struct {
		Message string `json:"message"`
	} `json:"last_nack"`
}

// clientStatus is one stream in the relay's /clients.
type clientStatus struct {
	Node  string       `json:"node"`
	Types []typeStatus `json:"types"`
}

// states returns the state of each type of a node's streams, by the type's
// short name.
func states(r *xdstest.Relay, node string) (map[string]string, error) {
	all, err := xdstest.List[clientStatus](r, "/clients")
	if err != nil {
		return nil, err
	}
	out := make(map[string]string)
	for _, c := range all {
		if c.Node == node {
			for _, t := range c.Types {
				out[short(t.Type)] = t.State
			}
		}
	}
	return out, nil
}

// connected returns how many streams each node has at a relay.
func connected(r *xdstest.Relay) (map[string]int, error) {
	all, err := xdstest.List[clientStatus](r, "/clients")
	if err != nil {
		return nil, err
	}
	out := make(map[string]int)
	for _, c := range all {
		out[c.Node]++
	}
	return out, nil
}

// waitInStep waits until an Envoy has all that the relay has for it: /clients
// and `relay status` say SYNCED for all four types.
func waitInStep(e *envoy, r *xdstest.Relay) {
	e.t.Helper()
	xdstest.Eventually(e.t, e.node+" in step", func() error {
		got, err := states(r, e.node)
		if err != nil {
			return err
		}
		for _, typ := range []string{"CDS", "EDS", "LDS", "RDS"} {
			if got[typ] != "SYNCED" {
				return fmt.Errorf("%s is %q of %v", typ, got[typ], got)
			}
		}
		table, code := r.Run("status", "--node", e.node)
		if code != 0 || strings.Count(table, "SYNCED") < 4 || strings.Contains(table, "NACKED") {
			return fmt.Errorf("relay status exits with %d and says\n%s", code, table)
		}
		return nil
	})
}

// csds asks the relay's CSDS about a node and returns its resources by type and
// name. address is that of admin.grpc_address.
func csds(address, node string) (map[string]*statusv3.ClientConfig_GenericXdsConfig, error) {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // only read from
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	resp, err := statusv3.NewClientStatusDiscoveryServiceClient(conn).FetchClientStatus(ctx, &statusv3.ClientStatusRequest{})
	if err != nil {
		return nil, err
	}
	out := make(map[string]*statusv3.ClientConfig_GenericXdsConfig)
	for _, c := range resp.GetConfig() {
		if c.GetNode().GetId() != node {
			continue
		}
		for _, g := range c.GetGenericXdsConfigs() {
			out[short(g.GetTypeUrl())+" "+g.GetName()] = g
		}
	}
	return out, nil
}
