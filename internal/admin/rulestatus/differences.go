package rulestatus

import (
	"cmp"
	"hash/maphash"
	"iter"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"xdsrelay/internal/admin/keystatus"
	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/xds"
)

const (
	maxFields = 200 // of the nodes of a key
	maxValues = 100 // of a field that are told apart
	maxShown  = 20  // fields of a key that are shown
	maxDepth  = 4   // of metadata; deeper values are compared as a whole
)

// Differences returns in what the nodes of the clients of each key differ, by the key as text; only one
// key if only is not empty. The order of the fields is that of their numbers of values, because a field
// with a few values tells kinds of clients apart. It takes about as long as budget at most.
func Differences(clients iter.Seq[inspect.ClientStatus], only string, budget time.Duration) map[string]*keystatus.Differences {
	sets := map[string]*nodeSet{}
	until := time.Now().Add(budget)
	for c := range clients {
		if c.FullNode == nil {
			continue
		}
		var keys []string
		for i := range c.Types {
			if k := c.Types[i].Key; k != "" && (only == "" || k == only) && !slices.Contains(keys, k) {
				keys = append(keys, k)
			}
		}
		if keys == nil {
			continue
		}
		_ = c.FullNode.With(func(m *corev3.Node) error { // it was well-formed when it came
			for _, k := range keys {
				if sets[k] == nil {
					sets[k] = &nodeSet{seen: map[*xds.Node]bool{}, fields: map[string]*values{}}
				}
				sets[k].add(c.FullNode, m)
			}
			return nil
		})
		if time.Now().After(until) {
			break
		}
	}
	out := make(map[string]*keystatus.Differences, len(sets))
	for k, s := range sets {
		out[k] = s.differences()
	}
	return out
}

// nodeSet has the values of the fields of some nodes.
type nodeSet struct {
	seen   map[*xds.Node]bool
	fields map[string]*values
}

// values are the different values of a field.
type values struct {
	nodes  int // that have the field
	hashes []uint64
}

var seed = maphash.MakeSeed()

func (s *nodeSet) add(n *xds.Node, m *corev3.Node) {
	if s.seen[n] {
		return
	}
	s.seen[n] = true
	s.text("cluster", m.GetCluster())
	s.text("user_agent_name", m.GetUserAgentName())
	s.text("user_agent_version", n.UserAgentVersion)
	s.text("locality.region", m.GetLocality().GetRegion())
	s.text("locality.zone", m.GetLocality().GetZone())
	s.text("locality.sub_zone", m.GetLocality().GetSubZone())
	features := slices.Sorted(slices.Values(m.GetClientFeatures()))
	s.text("client_features", strings.Join(features, " "))
	s.metadata("metadata", m.GetMetadata(), 1)
	for name, parameters := range m.GetDynamicParameters() {
		s.message("dynamic_parameters."+name, parameters)
	}
}

func (s *nodeSet) metadata(path string, of *structpb.Struct, depth int) {
	for name, v := range of.GetFields() {
		if inner := v.GetStructValue(); inner != nil && depth < maxDepth {
			s.metadata(path+"."+name, inner, depth+1)
		} else {
			s.message(path+"."+name, v)
		}
	}
}

func (s *nodeSet) message(field string, m proto.Message) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err == nil {
		s.value(field, maphash.Bytes(seed, b))
	}
}

func (s *nodeSet) text(field, text string) {
	if text != "" {
		s.value(field, maphash.String(seed, text))
	}
}

func (s *nodeSet) value(field string, hash uint64) {
	v := s.fields[field]
	if v == nil {
		if len(s.fields) == maxFields {
			return
		}
		v = new(values)
		s.fields[field] = v
	}
	v.nodes++
	if len(v.hashes) < maxValues && !slices.Contains(v.hashes, hash) {
		v.hashes = append(v.hashes, hash)
	}
}

// differences returns the fields that differ. A node without a field counts as another value of it.
func (s *nodeSet) differences() *keystatus.Differences {
	d := &keystatus.Differences{Nodes: len(s.seen)}
	for name, v := range s.fields {
		f := keystatus.DifferingField{Field: name, Values: len(v.hashes), More: len(v.hashes) == maxValues}
		if v.nodes < d.Nodes {
			f.Values++
		}
		if f.Values > 1 {
			d.Fields = append(d.Fields, f)
		}
	}
	slices.SortFunc(d.Fields, func(a, b keystatus.DifferingField) int {
		return cmp.Or(cmp.Compare(a.Values, b.Values), cmp.Compare(a.Field, b.Field))
	})
	if more := len(d.Fields) - maxShown; more > 0 {
		d.Fields, d.More = d.Fields[:maxShown], more
	}
	return d
}
