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

const (
	ProgramEnvoy = "envoy"
	ProgramGRPC  = "gRPC"
)

// Input is a node to explain, as an operator gives it.
type Input struct {
	Node *xds.Node
	Peer expr.Peer
	// Program is the program whose bootstrap has the node; empty: the node is in no bootstrap. A program
	// adds fields to the node of its bootstrap. ParseNode adds its name, unless the bootstrap has one.
	Program string
}

// Unknown names the fields of the node that the program adds and that its bootstrap does not have.
func (in *Input) Unknown() (fields []string) {
	if in.Program == ProgramEnvoy {
		if in.Node.ID == "" {
			fields = append(fields, "id")
		}
		if in.Node.Cluster == "" {
			fields = append(fields, "cluster")
		}
		return append(fields, "user_agent_build_version", "client_features", "extensions")
	}
	if in.Program == ProgramGRPC {
		return []string{"the rest of user_agent_name", "user_agent_version", "client_features"}
	}
	return nil
}

// ParseNode reads a node to explain from a text that an operator gives: an envoy.config.core.v3.Node
// in JSON or YAML, or a bootstrap of Envoy or gRPC that has one. A Node has no field named node, which
// tells the two apart. A second YAML document is the peer. The node belongs to table.
//
// YAML aliases are an error, because a small text with aliases can stand for a huge node.
func ParseNode(text []byte, table *xds.NodeTable) (in Input, err error) {
	message := text
	isJSON := json.Valid(text)
	if isJSON {
		var bootstrap map[string]json.RawMessage
		if err := json.Unmarshal(text, &bootstrap); err == nil && bootstrap["node"] != nil {
			message, isJSON = bootstrap["node"], false
			in.Program = programOf(bootstrap["xds_servers"] != nil)
			if string(message) == "null" {
				return in, errNullNode
			}
		}
	} else {
		docs, err := documents(text)
		switch {
		case err != nil:
			return in, err
		case len(docs) == 0:
			return in, errors.New("must have a node, but is empty")
		case len(docs) > 2:
			return in, fmt.Errorf("line %d: must have at most two documents, the node and the peer", docs[2].Line)
		case len(docs) == 2:
			if in.Peer, err = peerOf(docs[1]); err != nil {
				return in, fmt.Errorf("peer: %w", err)
			}
		}
		node := fieldOf(docs[0], "node")
		switch {
		case node == nil:
			node = docs[0]
		case node.ShortTag() == "!!null":
			return in, fmt.Errorf("line %d: %w", node.Line, errNullNode)
		default:
			in.Program = programOf(fieldOf(docs[0], "xds_servers") != nil)
		}
		if message, err = toJSON(node); err != nil {
			return in, err
		}
	}
	m := new(corev3.Node)
	if err := protojson.Unmarshal(message, m); err != nil {
		err = xds.PlainError(err)
		if !isJSON { // the JSON made here has other lines than the text
			err = errors.New(jsonPlace.ReplaceAllString(err.Error(), ""))
		}
		if in.Program == "" {
			err = fmt.Errorf("must be a node, or a bootstrap with a node: %w", err)
		}
		return in, err
	}
	if m.UserAgentName == "" {
		m.UserAgentName = in.Program
	}
	raw, err := proto.Marshal(m)
	if err != nil {
		return in, err
	}
	in.Node, err = table.Intern(raw)
	return in, err
}

var errNullNode = errors.New("node: is null; must be a node")

func programOf(isGRPC bool) string {
	if isGRPC {
		return ProgramGRPC
	}
	return ProgramEnvoy
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

// fieldOf returns the value of a field; nil: root has no such field.
func fieldOf(root *yaml.Node, name string) *yaml.Node {
	if root.Kind == yaml.MappingNode {
		for i := 0; i < len(root.Content); i += 2 {
			if root.Content[i].Value == name {
				return root.Content[i+1]
			}
		}
	}
	return nil
}

func toJSON(n *yaml.Node) ([]byte, error) {
	var v any
	if err := decode(n, &v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

var peerFields = []string{"address", "uri_sans", "dns_sans", "subject", "token"}

func peerOf(root *yaml.Node) (p expr.Peer, err error) {
	if root.Kind == yaml.MappingNode {
		for i := 0; i < len(root.Content); i += 2 {
			if name := root.Content[i]; !slices.Contains(peerFields, name.Value) {
				return p, fmt.Errorf("line %d: unknown field %s; the fields are address, uri_sans, dns_sans, subject and token", name.Line, name.Value)
			}
		}
	}
	err = decode(root, &p)
	return p, err
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
