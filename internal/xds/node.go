package xds

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"runtime"
	"unicode/utf8"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Fields of envoy.config.core.v3.Node.
const (
	nodeID        protowire.Number = 1
	nodeCluster   protowire.Number = 2
	nodeUserAgent protowire.Number = 6
	nodeFeatures  protowire.Number = 10
	nodeDynamic   protowire.Number = 12
)

// Node is a client's identity: the bytes of its envoy.config.core.v3.Node, and
// the few fields that are read often. One value exists for each distinct
// content that a NodeTable knows, so two nodes of one table are the same if
// and only if their pointers are.
type Node struct {
	raw       []byte
	ID        string
	Cluster   string
	UserAgent string
	features  features
}

// Bytes is the node as it came; not to be changed.
func (n *Node) Bytes() []byte { return n.raw }

// Decode decodes the whole message anew at each call. A node with 30 KB of metadata takes a
// third of a millisecond and twice its size. Code that many clients can run at once calls
// With instead.
func (n *Node) Decode() (*corev3.Node, error) {
	m := new(corev3.Node)
	if err := proto.Unmarshal(n.raw, m); err != nil {
		return nil, fmt.Errorf("node: %w", Plain(err))
	}
	return m, nil
}

// largeNode is the size in bytes above which With limits how many nodes are decoded at
// once. A decoded node can be fifty times as large as its bytes.
const largeNode = 64 << 10

// decoding has a slot for each large node that is being decoded.
var decoding = make(chan struct{}, runtime.GOMAXPROCS(0))

// With decodes the message anew and calls f with it. f must not keep it and must not call
// With. At most GOMAXPROCS large nodes are decoded at the same time.
func (n *Node) With(f func(*corev3.Node) error) error {
	if len(n.raw) > largeNode {
		decoding <- struct{}{}
		defer func() { <-decoding }()
	}
	m, err := n.Decode()
	if err != nil {
		return err
	}
	return f(m)
}

// NodeIDOf is the id in a node's bytes; empty if there is none.
func NodeIDOf(raw []byte) (id string) {
	_ = eachField(raw, func(num protowire.Number, typ protowire.Type, val, _ []byte) error {
		if num == nodeID && typ == protowire.BytesType {
			id = string(val)
		}
		return nil
	})
	return id
}

// parseNode reads the fields of raw, which it keeps. The whole message is
// looked through to see that it is well-formed.
func parseNode(raw []byte) (*Node, error) {
	n := &Node{raw: raw}
	err := eachField(raw, func(num protowire.Number, typ protowire.Type, val, _ []byte) error {
		if typ != protowire.BytesType {
			return nil
		}
		switch num {
		case nodeID:
			n.ID = string(val)
		case nodeCluster:
			n.Cluster = string(val)
		case nodeUserAgent:
			n.UserAgent = string(val)
		case nodeFeatures:
			n.features.add(val)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("node: %w", Plain(err))
	}
	if err := wellFormed(nodeForm(), raw, maxNested); err != nil {
		return nil, fmt.Errorf("node: %w", Plain(err))
	}
	return n, nil
}

// MergeDynamic returns node's bytes with the dynamic_parameters of later in
// place of its own (P1), or node itself if later has the same.
func MergeDynamic(node, later []byte) ([]byte, error) {
	split := func(raw []byte) (dynamic, rest []byte, err error) {
		err = eachField(raw, func(num protowire.Number, _ protowire.Type, _, whole []byte) error {
			if num == nodeDynamic {
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
		return nil, fmt.Errorf("node: %w", Plain(err))
	}
	has, _, err := split(later)
	if err != nil {
		return nil, fmt.Errorf("node: %w", Plain(err))
	}
	if bytes.Equal(had, has) {
		return node, nil
	}
	return append(rest, has...), nil
}

// WithFeatures returns the node's bytes with these client features and no
// others (P58: the relay announces what it implements itself).
func WithFeatures(node []byte, features ...string) []byte {
	out := make([]byte, 0, len(node)+64)
	// The bytes were well-formed when the Node was made.
	_ = eachField(node, func(num protowire.Number, _ protowire.Type, _, whole []byte) error {
		if num != nodeFeatures {
			out = append(out, whole...)
		}
		return nil
	})
	for _, f := range features {
		out = protowire.AppendTag(out, nodeFeatures, protowire.BytesType)
		out = protowire.AppendString(out, f)
	}
	return out
}

// NodeTable keeps one Node for each distinct content for as long as anyone
// holds it. It is safe for concurrent use; the zero value is empty.
type NodeTable struct{ nodes WeakSet[Node] }

var nodeHashSeed = maphash.MakeSeed()

// Intern returns the Node of raw, which it copies if it keeps it. The error
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

// Len returns how many nodes the table holds.
func (t *NodeTable) Len() int { return t.nodes.Len() }

// eachField calls f for each field of a message on the wire, with the field's
// value (without length) and the whole field. It checks field framing and no
// more. The slices alias b.
func eachField(b []byte, f func(num protowire.Number, typ protowire.Type, val, whole []byte) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return wireError(n)
		}
		m := protowire.ConsumeFieldValue(num, typ, b[n:])
		if m < 0 {
			return wireError(m)
		}
		val := b[n : n+m]
		if typ == protowire.BytesType {
			_, w := protowire.ConsumeVarint(val)
			val = val[w:]
		}
		if err := f(num, typ, val, b[:n+m]); err != nil {
			return err
		}
		b = b[n+m:]
	}
	return nil
}

func validName(b []byte) bool { return utf8.Valid(b) }
