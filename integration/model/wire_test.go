package model

import (
	"fmt"
	"strconv"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"xdsrelay/internal/xds"
)

const (
	cds = xds.ClusterType
	eds = xds.EndpointType
	lds = xds.ListenerType
)

var types = []xds.TypeURL{cds, eds, lds}

// fullState: in SotW a response holds everything. It is repeated here because the relay's own table
// is under test.
func fullState(typ xds.TypeURL) bool { return typ == cds || typ == lds }

// makeAny makes a resource; content 0 is none.
func makeAny(typ xds.TypeURL, name string, content int) *anypb.Any {
	var m proto.Message
	switch typ {
	case cds:
		m = &clusterv3.Cluster{Name: name, AltStatName: strconv.Itoa(content), ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}}
	case lds:
		m = &listenerv3.Listener{Name: name, StatPrefix: strconv.Itoa(content)}
	default:
		m = &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{{Priority: uint32(content)}}}
	}
	a, err := anypb.New(m)
	if err != nil {
		panic(err)
	}
	return a
}

// readAny is makeAny's inverse.
func readAny(a *anypb.Any) (name string, content int, err error) {
	m, err := a.UnmarshalNew()
	if err != nil {
		return "", 0, err
	}
	switch m := m.(type) {
	case *clusterv3.Cluster:
		content, err = strconv.Atoi(m.AltStatName)
		return m.Name, content, err
	case *listenerv3.Listener:
		content, err = strconv.Atoi(m.StatPrefix)
		return m.Name, content, err
	case *endpointv3.ClusterLoadAssignment:
		return m.ClusterName, int(m.Endpoints[0].Priority), nil
	}
	return "", 0, fmt.Errorf("a resource of type %s", a.TypeUrl)
}
