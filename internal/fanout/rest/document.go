package rest

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"sync"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/hashicorp/golang-lru/v2/simplelru"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/types/known/anypb"

	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// document is the response of one snapshot to all polls with equal subscriptions. Its version is
// computed at the first use, and its body when it is first sent. So polls that already have the
// version cost no encoding.
type document struct {
	look       sync.Once
	ready      bool   // there is an answer
	version    string // P71
	unanswered bool   // the origin has not answered some requested names

	mu   sync.Mutex
	done chan struct{} // closed when body or err is set; nil: encoding has not begun
	body []byte
	err  error
}

// Documents are the documents of one snapshot, in an LRU cache. The zero value is empty.
type Documents struct {
	mu    sync.Mutex
	cells *simplelru.LRU[*snapshot.Subscription, *document]
	costs map[*document]int64
	cost  int64
	max   int64
}

// Bounds of the documents of a snapshot. JSON is larger than the protobuf that it is made of. There
// may be many small documents, since Envoy polls the endpoints of each cluster separately.
const (
	maxDocuments  = 4096
	documentBytes = 1 << 20
	jsonFactor    = 8
	nameCost      = 64 // of a requested name, in bytes: a document keeps its subscription
)

// document returns the document for sub, which is interned.
func (a *Documents) document(s *snapshot.Snapshot, sub *snapshot.Subscription) *document {
	a.mu.Lock()
	if a.cells == nil {
		a.max, a.costs = jsonFactor*s.Bytes+documentBytes, make(map[*document]int64)
		// It fails only for a size that is not positive.
		a.cells, _ = simplelru.NewLRU(maxDocuments, func(_ *snapshot.Subscription, c *document) {
			a.cost -= a.costs[c]
			delete(a.costs, c)
		})
	}
	c, ok := a.cells.Get(sub)
	if !ok {
		c = new(document)
		a.cells.Add(sub, c)
		a.charge(c, int64(1+sub.Names.Len())*nameCost)
	}
	a.mu.Unlock()
	c.look.Do(func() {
		c.ready, c.version = answerFor(s, sub)
		c.unanswered = s.AnyUnanswered(sub)
	})
	return c
}

// grew adds the body of sub's document to its cost.
func (a *Documents) grew(sub *snapshot.Subscription, c *document) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cells == nil {
		return // released since
	}
	if have, ok := a.cells.Peek(sub); ok && have == c {
		a.charge(c, int64(len(c.body)))
	}
}

// charge adds to the cost of a document, and evicts others if needed. The last one stays, whatever
// it costs, since it is needed. The lock is held.
func (a *Documents) charge(c *document, cost int64) {
	a.costs[c] += cost
	a.cost += cost
	snapshot.CountDerived(cost)
	for a.cost > a.max && a.cells.Len() > 1 {
		a.cells.RemoveOldest()
	}
}

// answerFor says whether there is an answer for sub, and its version.
//
//   - For the wildcard there is one once the origin has answered it, even if it is empty (P11).
//   - For a full-state type there is one as soon as anything is known of any name (P30, P34).
//   - For other types only resources are an answer. SotW cannot say that a name is absent (P31),
//     and Envoy rejects an empty update of Secrets, Runtime or extensions.
//
// An error of a name (P39) makes a new version, and is sent beside resources. It is no answer by
// itself.
func answerFor(s *snapshot.Snapshot, sub *snapshot.Subscription) (ready bool, version string) {
	h := newVersion()
	h.flag(sub.Wildcard)
	h.number(uint64(sub.Names.Len()))
	for name := range sub.Names.All() {
		h.text(name)
	}
	n := 0
	s.Covered(sub, func(r *xds.Resource) bool {
		h.text(r.Name)
		_, _ = h.Write(r.Version[:])
		n++
		return true
	})
	s.Errors(sub, func(e *xds.ResourceError) bool {
		h.text("") // no resource's name
		h.text(string(e.Wire()))
		return true
	})
	switch {
	case sub.Wildcard:
		ready = s.AnswersWildcard(sub)
	case s.Type.FullState:
		ready = n > 0 || anyKnown(s, sub)
	default:
		ready = n > 0
	}
	return ready, h.String()
}

// anyKnown reports whether anything is known of any of the names.
func anyKnown(s *snapshot.Snapshot, sub *snapshot.Subscription) bool {
	for name := range sub.Names.All() {
		if _, is := s.Look(sub, name); is == snapshot.Present || is == snapshot.Absent {
			return true
		}
	}
	return false
}

// version computes a REST version: the first 128 bits of a SHA-256 over the requested names and the
// content versions of the answer, each text after its length. It is the same in every replica and
// after a restart. So a client that comes from another replica is not sent again what it has.
type version struct {
	hash.Hash
	buf []byte // of a part
}

func newVersion() *version { return &version{Hash: sha256.New()} }

func (v *version) number(n uint64) {
	v.buf = binary.AppendUvarint(v.buf[:0], n)
	_, _ = v.Write(v.buf)
}

func (v *version) flag(set bool) {
	if set {
		v.number(1)
	} else {
		v.number(0)
	}
}

func (v *version) text(s string) {
	v.buf = append(binary.AppendUvarint(v.buf[:0], uint64(len(s))), s...)
	_, _ = v.Write(v.buf)
}

func (v *version) String() string { return hex.EncodeToString(v.Sum(nil)[:16]) }

// encoded returns the document's body. The first poll that asks makes it for all, when one of the
// encoders is free, and counts the fields that are left out. If ctx ends before, a poll that
// waits fails with ctx's error.
func (s *Server) encoded(ctx context.Context, snap *snapshot.Snapshot, sub *snapshot.Subscription, a *document, of *telemetry.TypeMetrics) ([]byte, error) {
	a.mu.Lock()
	done := a.done
	if done != nil {
		a.mu.Unlock()
		select {
		case <-done:
			return a.body, a.err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	done = make(chan struct{})
	a.done = done
	a.mu.Unlock()

	// Set before anything can panic, so that other polls do not wait for ever.
	a.err = fmt.Errorf("response: cannot be encoded as JSON")
	defer close(done)
	s.pollers.encoders <- struct{}{}
	defer func() { <-s.pollers.encoders }()
	body, err := s.encode(snap, sub, a.version, of)
	if a.body, a.err = body, err; err != nil {
		s.opts.Log.Error("response not sent: it cannot be encoded as JSON", "type", snap.Type.URL, "version", a.version, "origin", snap.Origin, "error", err)
	}
	s.opts.DocumentsOf(snap).grew(sub, a)
	return a.body, a.err
}

// encode makes the DiscoveryResponse as canonical JSON. Only one resource is decoded at a time.
// Resources are never wrapped, since polls renew no TTL (P62). The nonce is the version: it is the
// same for all clients, and identifies the answer in a NACK.
func (s *Server) encode(snap *snapshot.Snapshot, sub *snapshot.Subscription, version string, of *telemetry.TypeMetrics) ([]byte, error) {
	head, err := json.Marshal(version)
	if err != nil {
		return nil, err
	}
	failures, err := jsonErrors(snap, sub)
	if err != nil {
		return nil, err
	}
	tail, err := json.Marshal(struct {
		TypeURL string            `json:"typeUrl"`
		Nonce   string            `json:"nonce"`
		Control any               `json:"controlPlane"`
		Errors  []json.RawMessage `json:"resourceErrors,omitempty"`
	}{string(snap.Type.URL), version, map[string]string{"identifier": s.opts.Identifier(snap)}, failures})
	if err != nil {
		return nil, err
	}
	b := append([]byte(`{"versionInfo":`), head...)
	b = append(b, `,"resources":[`...)
	n, lost := 0, 0
	var first string // name of the first that lost a field
	snap.Covered(sub, func(r *xds.Resource) bool {
		if n++; n > 1 {
			b = append(b, ',')
		}
		var whole bool
		if b, whole, err = appendJSON(b, r); err != nil {
			return false
		}
		if !whole {
			if lost++; lost == 1 {
				first = r.Name
			}
		}
		if len(b) > listener.MaxMessage {
			err = fmt.Errorf("response: larger than %d bytes in JSON", listener.MaxMessage)
		}
		return err == nil
	})
	if err != nil {
		return nil, err
	}
	if lost > 0 {
		of.LeftOut.Add(lost)
		s.opts.Log.Warn("unknown fields left out of a JSON response; gRPC responses keep them",
			"type", snap.Type.URL, "resources", lost, "first", first, "origin", snap.Origin)
	}
	b = append(b, "],"...)
	return append(b, tail[1:]...), nil
}

// jsonErrors are the errors of names that sub covers (P39), in canonical JSON. An error with
// details of unknown types keeps only its code and message.
func jsonErrors(snap *snapshot.Snapshot, sub *snapshot.Subscription) (out []json.RawMessage, err error) {
	snap.Errors(sub, func(e *xds.ResourceError) bool {
		m := new(discoveryv3.ResourceError)
		if err = proto.Unmarshal(e.Wire(), m); err != nil {
			err = fmt.Errorf("response: error of resource %q: %w", e.Name, xds.PlainError(err))
			return false
		}
		b, failed := protojson.Marshal(m)
		if failed != nil {
			m.GetErrorDetail().Details = nil
			b, failed = protojson.Marshal(m)
		}
		if err = failed; err != nil {
			err = fmt.Errorf("response: error of resource %q cannot be encoded as JSON: %w", e.Name, xds.PlainError(err))
			return false
		}
		out = append(out, b)
		return true
	})
	return out, err
}

// appendJSON appends a resource as canonical JSON. whole: this program knows all of its fields, at
// every depth.
func appendJSON(b []byte, r *xds.Resource) (out []byte, whole bool, err error) {
	a := new(anypb.Any)
	if err := proto.Unmarshal(r.Any(), a); err != nil {
		return b, false, fmt.Errorf("response: resource %q: %w", r.Name, xds.PlainError(err))
	}
	if b, err = (protojson.MarshalOptions{}).MarshalAppend(b, a); err != nil {
		return b, false, fmt.Errorf("response: resource %q cannot be encoded as JSON: %w", r.Name, xds.PlainError(err))
	}
	return b, !leavesOut(a), nil
}

// leavesOut reports whether the message, or one inside it, has unknown fields.
func leavesOut(m proto.Message) bool {
	found := false
	_ = protorange.Range(m.ProtoReflect(), func(p protopath.Values) error {
		if p.Index(-1).Step.Kind() == protopath.UnknownAccessStep {
			found = true
			return protorange.Terminate
		}
		return nil
	})
	return found
}
