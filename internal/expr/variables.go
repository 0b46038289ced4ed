package expr

import (
	"fmt"
	"reflect"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/ext"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// Peer is the other end of a connection, for expressions. The names are empty if none was proven.
type Peer struct {
	Address string   `cel:"address" json:"address" yaml:"address"`
	URISANs []string `cel:"uri_sans" json:"uri_sans" yaml:"uri_sans"`
	DNSSANs []string `cel:"dns_sans" json:"dns_sans" yaml:"dns_sans"`
	Subject string   `cel:"subject" json:"subject" yaml:"subject"`
	// Token has the claims of a verified token.
	Token map[string]any `json:"token" yaml:"token"`
}

// Input has the variables of an expression. A nil Node is an empty node.
type Input struct {
	Node *corev3.Node
	Type string
	Peer Peer

	vars cel.Activation // nil outside Together
}

// Together calls f with in, and returns when f has returned. The expressions that f evaluates over its
// argument share one goroutine and one set of variables. An expression that is evaluated alone has
// these for itself, which costs more than a simple expression. f must not change its argument or use it
// after it has returned.
//
// The goroutine is not the caller's because CEL needs a deep stack. On the goroutine of a stream, that
// stack would stay as long as the stream.
func (in Input) Together(f func(in Input)) {
	if in.vars != nil {
		f(in)
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		in.vars = in.activation()
		f(in)
	}()
	<-done
}

// The names of the variables. To add one, see environment and activation, and
// cacheKey in aggregator/rules.go: keys are cached by the variables that the rules use.
const (
	varNode = "node"
	varType = "type"
	varPeer = "peer"

	// varMetadata is node.metadata. It is a variable of its own, because CEL copies a field that is a
	// google.protobuf.Struct each time that an expression reads a part of it.
	varMetadata = "node.metadata"
	// varToken is peer.token. It is a variable of its own, because CEL has no type for such a field.
	varToken = "peer.token"
)

func (in *Input) activation() cel.Activation {
	node := in.Node
	if node == nil {
		node = new(corev3.Node)
	}
	metadata := node.Metadata
	if metadata == nil {
		metadata = new(structpb.Struct)
	}
	// It fails only for a value that is no map.
	peer := in.Peer
	peer.Token = nil // dyn(peer) would have it too
	vars, _ := cel.NewActivation(map[string]any{varNode: node, varMetadata: metadata, varType: in.Type, varPeer: peer, varToken: in.Peer.Token})
	return vars
}

// The environments of rules, of identity, and of the node sent to origins. They are made once.
var (
	ruleEnv = sync.OnceValues(func() (*cel.Env, error) { return environment(varNode, varMetadata, varType, varPeer, varToken) })
	peerEnv = sync.OnceValues(func() (*cel.Env, error) { return environment(varNode, varMetadata, varPeer, varToken) })
	nodeEnv = sync.OnceValues(func() (*cel.Env, error) { return environment(varNode, varMetadata) })
)

func environment(vars ...string) (*cel.Env, error) {
	opts := []cel.EnvOption{
		cel.Types(new(corev3.Node)),
		ext.NativeTypes(reflect.TypeFor[Peer](), ext.ParseStructTags(true)),
		ext.Strings(),
		cel.Container("envoy.config.core.v3"),
		cel.ASTValidators(literalPatterns{}, cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals()),
	}
	for _, v := range vars {
		t := cel.StringType
		switch v {
		case varNode:
			t = nodeType
		case varMetadata, varToken:
			t = cel.MapType(cel.StringType, cel.DynType)
		case varPeer:
			t = peerType
		}
		opts = append(opts, cel.Variable(v, t))
	}
	env, err := cel.NewEnv(opts...)
	if err != nil {
		return nil, fmt.Errorf("expression environment: %w", err)
	}
	return env, nil
}

var (
	nodeType = cel.ObjectType("envoy.config.core.v3.Node")
	peerType = cel.ObjectType("expr.Peer")
)
