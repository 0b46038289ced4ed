package aggregator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"xdsrelay/config"
	"xdsrelay/internal/expr"
	"xdsrelay/internal/xds"
)

// ParseNode reads a node to explain from a text that an operator gives: an envoy.config.core.v3.Node
// in JSON or YAML, or an Envoy bootstrap that has one. A Node has no field named node, which tells
// the two apart. A second YAML document is the peer. The result belongs to table.
//
// YAML aliases are an error, because a small text with aliases can stand for a huge node.
func ParseNode(text []byte, table *xds.NodeTable) (*xds.Node, expr.Peer, error) {
	var peer expr.Peer
	message := text
	isJSON, bare := json.Valid(text), true // bare: no bootstrap is around the node
	if isJSON {
		var bootstrap struct{ Node json.RawMessage }
		if err := json.Unmarshal(text, &bootstrap); err == nil && bootstrap.Node != nil {
			message, isJSON, bare = bootstrap.Node, false, false
		}
	} else {
		docs, err := documents(text)
		switch {
		case err != nil:
			return nil, peer, err
		case len(docs) == 0:
			return nil, peer, errors.New("must have a node, but is empty")
		case len(docs) > 2:
			return nil, peer, fmt.Errorf("line %d: must have at most two documents, the node and the peer", docs[2].Line)
		case len(docs) == 2:
			if peer, err = peerOf(docs[1]); err != nil {
				return nil, peer, fmt.Errorf("peer: %w", err)
			}
		}
		node := nodeOf(docs[0])
		bare = node == docs[0]
		if message, err = toJSON(node); err != nil {
			return nil, peer, err
		}
	}
	m := new(corev3.Node)
	if err := protojson.Unmarshal(message, m); err != nil {
		err = xds.PlainError(err)
		if !isJSON { // the JSON made here has other lines than the text
			err = errors.New(jsonPlace.ReplaceAllString(err.Error(), ""))
		}
		if bare {
			err = fmt.Errorf("must be a node, or a bootstrap with a node: %w", err)
		}
		return nil, peer, err
	}
	raw, err := proto.Marshal(m)
	if err != nil {
		return nil, peer, err
	}
	node, err := table.Intern(raw)
	return node, peer, err
}

// ParsePeer reads a peer from JSON or YAML. An unknown field is an error.
func ParsePeer(text []byte) (expr.Peer, error) {
	docs, err := documents(text)
	if err != nil {
		return expr.Peer{}, err
	}
	if len(docs) != 1 {
		return expr.Peer{}, fmt.Errorf("must have one document, but has %d", len(docs))
	}
	return peerOf(docs[0])
}

// jsonPlace matches the position in an error of protojson.
var jsonPlace = regexp.MustCompile(` ?\(line \d+:\d+\):? ?`)

// documents returns the roots of the documents in a YAML text, without empty ones.
func documents(text []byte) (out []*yaml.Node, err error) {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var doc yaml.Node
		if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			line, reason := config.Syntax(text, err)
			return nil, fmt.Errorf("line %d: %s", line, reason)
		}
		if root := doc.Content[0]; root.ShortTag() != "!!null" {
			out = append(out, root)
		}
	}
}

// nodeOf returns the node in a bootstrap, or else root itself.
func nodeOf(root *yaml.Node) *yaml.Node {
	if root.Kind == yaml.MappingNode {
		for i := 0; i < len(root.Content); i += 2 {
			if root.Content[i].Value == "node" {
				return root.Content[i+1]
			}
		}
	}
	return root
}

func toJSON(n *yaml.Node) ([]byte, error) {
	var v any
	if err := decode(n, &v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// peerFields are the fields of a peer.
var peerFields = []string{"address", "uri_sans", "dns_sans", "subject", "token"}

func peerOf(root *yaml.Node) (p expr.Peer, err error) {
	if root.Kind == yaml.MappingNode {
		for i := 0; i < len(root.Content); i += 2 {
			if name := root.Content[i]; !slices.Contains(peerFields, name.Value) {
				return p, fmt.Errorf("line %d: unknown field %s; the fields are address, uri_sans, dns_sans, subject and token", name.Line, name.Value)
			}
		}
	}
	return p, decode(root, &p)
}

// decode decodes n, which has no aliases.
func decode(n *yaml.Node, into any) error {
	if a := alias(n); a != nil {
		return fmt.Errorf("line %d: YAML aliases are not supported; write out the value of *%s", a.Line, a.Value)
	}
	if err := n.Decode(into); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "yaml: unmarshal errors:\n  "))
	}
	return nil
}

// alias returns the first alias in n; nil: it has none.
func alias(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n
	}
	for _, c := range n.Content {
		if a := alias(c); a != nil {
			return a
		}
	}
	return nil
}
