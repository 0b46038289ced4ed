package admin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"xdsrelay/internal/aggregator"
	"xdsrelay/internal/expr"
	"xdsrelay/internal/xds"
)

// explained is the answer to POST /explain, and the JSON of `relay explain`. It has one explanation
// for each type, or a single one without a type if the rules do not use the type.
type explained struct {
	Node    string                    `json:"node"`
	Cluster string                    `json:"cluster,omitempty"`
	Types   []*aggregator.Explanation `json:"types"`
}

func (s *Server) explain(r *http.Request) (int, any) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return fail(http.StatusBadRequest, err.Error())
	}
	read := s.readNode
	if mediaType(r) == yamlType {
		read = s.readYAML
	}
	node, peer, err := read(body)
	if err != nil {
		return fail(http.StatusBadRequest, err.Error())
	}
	return s.explainNode(r, node, peer)
}

// explainClient explains the keys of the first connected client with a node id.
func (s *Server) explainClient(r *http.Request) (int, any) {
	if !r.URL.Query().Has("node") {
		return fail(http.StatusBadRequest, "node: GET needs the id of a connected client; POST takes a node")
	}
	id := r.URL.Query().Get("node")
	var node *xds.Node
	var peer expr.Peer
	for c := range s.opts.Clients.PreviewRekey(0, func(n *xds.Node, p expr.Peer, _ xds.TypeURL) (xds.Key, error) {
		node, peer = n, p
		return xds.Key{}, nil
	}) {
		if c.Node == id && node != nil {
			return s.explainNode(r, node, peer)
		}
		node = nil
	}
	return unknownNode(id)
}

func (s *Server) explainNode(r *http.Request, node *xds.Node, peer expr.Peer) (int, any) {
	rules := s.opts.Rules()
	types, err := typesToExplain(r, rules)
	if err != nil {
		return fail(http.StatusBadRequest, err.Error())
	}
	out := explained{Node: node.ID, Cluster: node.Cluster}
	for _, t := range types {
		x, err := rules.Explain(node, peer, t)
		if err != nil {
			return fail(http.StatusBadRequest, err.Error())
		}
		if x.Refused == "" {
			x.Owner = s.opts.Keys.Owner(xds.NewKey(x.Elements...))
		}
		out.Types = append(out.Types, x)
	}
	return http.StatusOK, out
}

// typesToExplain returns the type of ?type=, or all types if the rules use the type.
func typesToExplain(r *http.Request, rules Rules) ([]xds.TypeURL, error) {
	if name := r.URL.Query().Get("type"); name != "" {
		t, ok := xds.ParseType(name)
		if !ok {
			return nil, fmt.Errorf("type: must be a URL or a short name such as CDS, but is %q", name)
		}
		return []xds.TypeURL{t}, nil
	}
	if !rules.UsesType() {
		return []xds.TypeURL{""}, nil
	}
	var all []xds.TypeURL
	for _, t := range xds.Types() {
		all = append(all, t.URL)
	}
	return all, nil
}

// readYAML reads a node as relay explain does: also from a bootstrap, and a peer behind it.
func (s *Server) readYAML(body []byte) (*xds.Node, expr.Peer, error) {
	in, err := aggregator.ParseNode(body, &s.nodes)
	if err != nil {
		return nil, in.Peer, fmt.Errorf("body: %w", err)
	}
	return in.Node, in.Peer, nil
}

// readNode reads a node, or an object with a node and a peer. A Node has no field named node, which
// tells the two apart.
func (s *Server) readNode(body []byte) (*xds.Node, expr.Peer, error) {
	var peer expr.Peer
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, peer, fmt.Errorf("body: must be a JSON object: %w", err)
	}
	if node, ok := fields["node"]; ok {
		body = node
		delete(fields, "node")
		if p, ok := fields["peer"]; ok {
			delete(fields, "peer")
			dec := json.NewDecoder(bytes.NewReader(p))
			dec.DisallowUnknownFields()
			if err := dec.Decode(&peer); err != nil {
				return nil, peer, fmt.Errorf("peer: %w", err)
			}
		}
		for name := range fields {
			return nil, peer, fmt.Errorf("body: unknown field %q; the fields are node and peer", name)
		}
	}
	m := new(corev3.Node)
	if err := protojson.Unmarshal(body, m); err != nil {
		return nil, peer, fmt.Errorf("node: %w", xds.PlainError(err))
	}
	raw, err := proto.Marshal(m)
	if err != nil {
		return nil, peer, fmt.Errorf("node: %w", err)
	}
	node, err := s.nodes.Intern(raw)
	return node, peer, err
}
