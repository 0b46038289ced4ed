package inspect

import (
	"encoding/json"

	"google.golang.org/protobuf/proto"

	"xdsrelay/internal/telemetry/redact"
	"xdsrelay/internal/xds"
)

// maxNodeShown bounds the nodes whose locality and metadata are shown, in bytes. Decoding a larger
// one would delay other requests.
const maxNodeShown = 64 << 10

// ClientDetail is a client with the parts of its node that the list of all clients does not have.
type ClientDetail struct {
	ClientStatus
	// Locality and Metadata are without secrets.
	Locality json.RawMessage `json:"locality,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
	// NodeBytes is set if the node is too large to show its locality and metadata.
	NodeBytes int `json:"node_too_large_bytes,omitempty"`
}

// Details returns a function that adds the detail to a client. Clients with the same node share the
// work. The function is for one goroutine.
func Details() func(*ClientStatus) ClientDetail {
	var of *xds.Node
	var shown ClientDetail
	return func(c *ClientStatus) ClientDetail {
		if of != c.FullNode {
			of, shown = c.FullNode, detailOf(c.FullNode)
		}
		out := shown
		out.ClientStatus = *c
		return out
	}
}

func detailOf(n *xds.Node) (out ClientDetail) {
	if n == nil {
		return out
	}
	if size := len(n.Bytes()); size > maxNodeShown {
		out.NodeBytes = size
		return out
	}
	m, err := n.Decode()
	if err != nil {
		return out // it was well-formed when it came
	}
	if m.Locality != nil {
		out.Locality = shownJSON(m.Locality)
	}
	if m.Metadata != nil {
		out.Metadata = shownJSON(m.Metadata)
	}
	return out
}

// shownJSON is a message without its secrets; nil if JSON cannot express it.
func shownJSON(m proto.Message) json.RawMessage {
	b, err := redact.JSON(m)
	if err != nil {
		return nil
	}
	return b
}
