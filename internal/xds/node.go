package xds

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"runtime"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Fields of envoy.config.core.v3.Node.
const (
	nodeFieldID           protowire.Number = 1
	nodeFieldCluster      protowire.Number = 2
	nodeFieldUserAgent    protowire.Number = 6
	nodeFieldVersion      protowire.Number = 7 // user_agent_version, a oneof with the next field
	nodeFieldBuildVersion protowire.Number = 8 // user_agent_build_version
	nodeFieldFeatures     protowire.Number = 10
	nodeFieldDynamic      protowire.Number = 12
)

// buildVersionField is the version in envoy.config.core.v3.BuildVersion. Its fields major_number,
// minor_number and patch have the numbers 1 to 3.
const buildVersionField protowire.Number = 1

// maxUserAgent bounds the name and the version of a user agent, in bytes.
const maxUserAgent = 128

// Node is a client's identity: the bytes of its envoy.config.core.v3.Node, and the few fields that
// the relay reads often. A NodeTable keeps one Node for each distinct content, so two nodes of one
// table are equal if and only if their pointers are. It is immutable.
type Node struct {
	raw     []byte
	ID      string
	Cluster string
	// UserAgent and UserAgentVersion name the client's program, cut to 128 bytes each. A build
	// version reads "1.40.0". "": the client does not say.
	UserAgent        string
	UserAgentVersion string
	features         features
}

// parseNode reads the fields of raw and keeps raw. It checks that the whole message is well-formed.
func parseNode(raw []byte) (*Node, error) {
	n := &Node{raw: raw}
	err := eachField(raw, func(num protowire.Number, typ protowire.Type, val, _ []byte) error {
		if typ != protowire.BytesType {
			return nil
		}
		switch num {
		case nodeFieldID:
			n.ID = string(val)
		case nodeFieldCluster:
			n.Cluster = string(val)
		case nodeFieldUserAgent:
			n.UserAgent = clipUserAgent(val)
		case nodeFieldVersion:
			n.UserAgentVersion = clipUserAgent(val)
		case nodeFieldBuildVersion:
			n.UserAgentVersion = buildVersion(val)
		case nodeFieldFeatures:
			n.features.add(val)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("node: %w", PlainError(err))
	}
	if err := checkWellFormed(nodeSchema(), raw, maxNested); err != nil {
		return nil, fmt.Errorf("node: %w", PlainError(err))
	}
	return n, nil
}

func clipUserAgent(b []byte) string {
	if len(b) > maxUserAgent {
		b = bytes.ToValidUTF8(b[:maxUserAgent], nil) // the cut may be within a character
	}
	return string(b)
}

// buildVersion returns the version in a BuildVersion, without its metadata. It returns "" if there
// is none. If b is malformed, the result does not matter: parseNode checks the node afterwards.
func buildVersion(b []byte) (text string) {
	_ = eachField(b, func(num protowire.Number, typ protowire.Type, version, _ []byte) error {
		if num != buildVersionField || typ != protowire.BytesType {
			return nil
		}
		var parts [3]uint32
		_ = eachField(version, func(num protowire.Number, typ protowire.Type, val, _ []byte) error {
			if typ == protowire.VarintType && num >= 1 && int(num) <= len(parts) {
				n, _ := protowire.ConsumeVarint(val)
				parts[num-1] = uint32(n)
			}
			return nil
		})
		text = fmt.Sprintf("%d.%d.%d", parts[0], parts[1], parts[2])
		return nil
	})
	return text
}

// NodeIDOf returns the id in a node's bytes, or "" if there is none.
func NodeIDOf(raw []byte) (id string) {
	_ = eachField(raw, func(num protowire.Number, typ protowire.Type, val, _ []byte) error {
		if num == nodeFieldID && typ == protowire.BytesType {
			id = string(val)
		}
		return nil
	})
	return id
}

// Bytes returns the node's bytes as the client sent them. Callers must not change them.
func (n *Node) Bytes() []byte { return n.raw }

// Decode decodes the whole message at each call. For a node with 30 KB of metadata this takes about
// 0.3 ms and 60 KB. Code that many clients can run at once calls With instead.
func (n *Node) Decode() (*corev3.Node, error) {
	m := new(corev3.Node)
	if err := proto.Unmarshal(n.raw, m); err != nil {
		return nil, fmt.Errorf("node: %w", PlainError(err))
	}
	return m, nil
}

// largeNodeBytes is the size in bytes above which With limits how many nodes are decoded at once. A
// decoded node can be 50 times as large as its bytes.
const largeNodeBytes = 64 << 10

// decodeSlots has one slot for each large node that is being decoded.
var decodeSlots = make(chan struct{}, runtime.GOMAXPROCS(0))

// With decodes the message and calls f with it. f must not keep the message and must not call With.
// At most GOMAXPROCS large nodes are decoded at the same time; further calls wait.
func (n *Node) With(f func(*corev3.Node) error) error {
	if len(n.raw) > largeNodeBytes {
		decodeSlots <- struct{}{}
		defer func() { <-decodeSlots }()
	}
	m, err := n.Decode()
	if err != nil {
		return err
	}
	return f(m)
}

// MergeDynamic returns the bytes of node with its dynamic_parameters replaced by those of later
// (P1). It returns node itself if both have the same parameters. It changes neither slice. The
// error says what is malformed.
func MergeDynamic(node, later []byte) ([]byte, error) {
	split := func(raw []byte) (dynamic, rest []byte, err error) {
		err = eachField(raw, func(num protowire.Number, _ protowire.Type, _, whole []byte) error {
			if num == nodeFieldDynamic {
				dynamic = append(dynamic, whole...)
			} else {
				rest = append(rest, whole...)
			}
			return nil
		})
		return dynamic, rest, err
	}
	had, rest, err := split(node)
	if err != nil {
		return nil, fmt.Errorf("node: %w", PlainError(err))
	}
	has, _, err := split(later)
	if err != nil {
		return nil, fmt.Errorf("node: %w", PlainError(err))
	}
	if bytes.Equal(had, has) {
		return node, nil
	}
	return append(rest, has...), nil
}

// WithFeatures returns the node's bytes with its client_features replaced by these. Upstream, the
// relay announces the features that it implements itself (P58).
func WithFeatures(node []byte, features ...string) []byte {
	out := make([]byte, 0, len(node)+64)
	// The error is ignored: the node was checked when it was interned.
	_ = eachField(node, func(num protowire.Number, _ protowire.Type, _, whole []byte) error {
		if num != nodeFieldFeatures {
			out = append(out, whole...)
		}
		return nil
	})
	for _, f := range features {
		out = protowire.AppendTag(out, nodeFieldFeatures, protowire.BytesType)
		out = protowire.AppendString(out, f)
	}
	return out
}

// NodeTable keeps one Node for each distinct content, as long as the Node is in use. It is safe for
// concurrent use. The zero value is an empty table.
type NodeTable struct{ nodes WeakSet[Node] }

var nodeHashSeed = maphash.MakeSeed()

// Intern returns the Node with the content raw. It keeps a copy of raw, never raw itself. The error
// says what is malformed.
func (t *NodeTable) Intern(raw []byte) (*Node, error) {
	h := maphash.Bytes(nodeHashSeed, raw)
	same := func(n *Node) bool { return bytes.Equal(n.raw, raw) }
	if n := t.nodes.Find(h, same); n != nil {
		return n, nil
	}
	n, err := parseNode(bytes.Clone(raw))
	if err != nil {
		return nil, err
	}
	return t.nodes.Keep(h, n, same), nil
}

// Len returns the number of nodes in the table.
func (t *NodeTable) Len() int { return t.nodes.Len() }
