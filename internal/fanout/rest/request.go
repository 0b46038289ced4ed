package rest

import (
	"bytes"
	"errors"
	"math"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"xdsrelay/config"
	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/fanout/session"
	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/redact"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

type request struct {
	typ  xds.Type
	node *xds.Node
	// sub is not interned: the group is not known yet.
	sub *snapshot.Subscription
	// version that the client has; empty: none.
	version string
	// isNACK: the poll is a NACK of the answer whose version is nonce (P13).
	isNACK bool
	nonce  string
	code   int32
	said   []byte // not redacted
}

// knows reports whether the client already has an answer of this version, or has just rejected it
// (P15). Then the answer is not sent.
func (q *request) knows(version string) bool {
	return q.version == version || q.isNACK && q.nonce == version
}

// jsonDepth is how deep a poll may be nested, in messages. It is what C++'s
// protobuf takes, so no Envoy has more.
const jsonDepth = 100

var errManyValues = errors.New("more values")

// decodePoll returns the encoding of the DiscoveryRequest that is body in canonical JSON. Unknown
// fields are skipped, as on the wire: newer clients have some. A value of a few bytes of JSON
// becomes a hundred in memory, so a body may have at most maxValues.
func decodePoll(body []byte, maxValues int) ([]byte, error) {
	if countValues(body) > maxValues {
		return nil, errManyValues
	}
	m := new(discoveryv3.DiscoveryRequest)
	// A Struct takes two messages for each level.
	how := protojson.UnmarshalOptions{DiscardUnknown: true, RecursionLimit: 2 * jsonDepth, Resolver: anything{}}
	if err := how.Unmarshal(body, m); err != nil {
		return nil, redact.Parsing(xds.PlainError(err))
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}

// anything resolves every Any to an empty message. An Any in a request is a detail of an error.
// The relay does not read it, and its type may not be linked.
type anything struct{}

func (anything) FindMessageByURL(string) (protoreflect.MessageType, error) {
	return new(discoveryv3.AdsDummy).ProtoReflect().Type(), nil
}

func (a anything) FindMessageByName(protoreflect.FullName) (protoreflect.MessageType, error) {
	return a.FindMessageByURL("")
}

func (anything) FindExtensionByName(protoreflect.FullName) (protoreflect.ExtensionType, error) {
	return nil, protoregistry.NotFound
}

func (anything) FindExtensionByNumber(protoreflect.FullName, protoreflect.FieldNumber) (protoreflect.ExtensionType, error) {
	return nil, protoregistry.NotFound
}

// countValues returns an upper bound of the number of values in a JSON text: each but the first
// comes after a comma or an opening bracket.
func countValues(body []byte) int {
	n := 1
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case ',', '[', '{':
			n++
		case '"':
			for i++; i < len(body) && body[i] != '"'; i++ {
				if body[i] == '\\' {
					i++
				}
			}
		}
	}
	return n
}

// maxValues is how many values a poll may have. Names and nodes within their limits cannot need
// more.
func maxValues(l *config.Limits) int {
	names, node := l.NamesPerStream, l.NodeBytes
	if names <= 0 || node <= 0 {
		return math.MaxInt // request_bytes alone bounds it
	}
	// A value takes at least two bytes on the wire.
	return names + node/2
}

// parse reads a poll of type t. The rules for the first request of a type on a stream hold for
// each poll (P1, P2, P21).
func (s *Server) parse(t xds.Type, body []byte) (*request, *refusal.Refusal) {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, refusal.New(codes.InvalidArgument, telemetry.RequestInvalid, "request: the body is empty")
	}
	l := s.opts.Limits()
	wire, err := decodePoll(body, maxValues(l))
	if errors.Is(err, errManyValues) {
		return nil, refusal.New(codes.ResourceExhausted, telemetry.LimitRequestBytes, "request: more JSON values than downstream.limits.names_per_stream (%d) and downstream.limits.node_bytes (%d) allow",
			l.NamesPerStream, l.NodeBytes)
	}
	if err != nil {
		return nil, refusal.New(codes.InvalidArgument, telemetry.RequestInvalid, "request: the body is not a DiscoveryRequest in canonical JSON: %w", err)
	}
	var r xds.Request
	if refused := listener.Scan(&r, xds.SotW, wire, l); refused != nil {
		return nil, refused
	}
	if len(r.TypeURL) > 0 && string(r.TypeURL) != string(t.URL) {
		return nil, refusal.New(codes.InvalidArgument, telemetry.TypeMismatch, "request: type_url must be %s at %s, but is %s", t.URL, t.REST, r.TypeURL)
	}
	if r.Node == nil {
		return nil, refusal.New(codes.InvalidArgument, telemetry.NodeMissing, "request: node is missing")
	}
	if refused := listener.CheckNode(r.Node, l); refused != nil {
		return nil, refused
	}
	node, err := s.opts.Nodes.Intern(r.Node)
	if err != nil {
		return nil, refusal.New(codes.InvalidArgument, telemetry.NodeInvalid, "request: %w", err)
	}
	plain := r
	plain.Version = nil // polls of the same request share the answer, whatever their versions
	sub, _ := session.New(&t, xds.ResourceFormat{Variant: xds.SotW}, 0).Subscribe(&plain)
	q := &request{
		typ: t, node: node, sub: sub, version: string(r.Version),
		isNACK: r.IsNACK, nonce: string(r.Nonce), code: r.ErrorCode,
	}
	if r.IsNACK {
		q.said = bytes.Clone(subscriber.MessageRead(r.ErrorMessage))
	}
	return q, nil
}
