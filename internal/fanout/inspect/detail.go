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
	// Names are there if the request asks for them.
	Names []TypeNames `json:"names,omitempty"`
}

// maxListed bounds the names of a type in TypeNames.
const maxListed = 200

// TypeNames are the names of a type that a client requested, and those of the resources that it has.
type TypeNames struct {
	Type  string      `json:"type"`
	Items []NameState `json:"items"` // sorted by name
	More  bool        `json:"more,omitempty"`
}

// NameState is the state of a name, as for types.
type NameState struct {
	Name   string `json:"name"`
	State  string `json:"state"`
	Absent bool   `json:"absent,omitempty"` // the client knows that there is no such resource
}

// NamesOf returns the first names of each type.
func NamesOf(types []TypeConfig) (out []TypeNames) {
	for _, t := range types {
		of := TypeNames{Type: string(t.URL), Items: []NameState{}}
		for r := range t.Resources {
			if of.More = len(of.Items) == maxListed; of.More {
				break
			}
			of.Items = append(of.Items, NameState{r.Name, r.State, r.NameStatus == StatusDoesNotExist})
		}
		out = append(out, of)
	}
	return out
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
