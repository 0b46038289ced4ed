package adsclient

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"xdsrelay/internal/xds"
)

// Request is an encoded request.
type Request struct {
	Type xds.TypeURL
	// Message is the encoded message, in parts. Requests share parts, which must not be changed.
	Message         [][]byte
	NACK            string // the fault, if it is a NACK
	Oversized       bool   // it exceeds MaxRequestBytes (P59)
	VersionsLeftOut int    // versions that did not fit
}

// Size is the size of the message in bytes.
func (r *Request) Size() int {
	n := 0
	for _, part := range r.Message {
		n += len(part)
	}
	return n
}

// newRequest makes a request of the node, if it is due, and these parts. Its message may exceed
// MaxRequestBytes: the names of a SotW request, the node and one name cannot be split (P59).
func (p *protocolState) newRequest(typ xds.TypeURL, parts ...[]byte) *Request {
	r := &Request{Type: typ, Message: append(parts, p.nodeField())}
	p.nodeSent = true
	r.Oversized = r.Size() > p.MaxRequestBytes
	return r
}

// nodeField is the encoded field of the node for the next request. It is in each request, unless
// the configuration says that the first one of the stream is enough (P58). A node may have 30 KB,
// so all requests of a stream share the field.
func (p *protocolState) nodeField() []byte {
	if p.nodeSent && p.SetNodeOnFirstMessageOnly {
		return nil
	}
	return p.node
}

// Fields of DiscoveryRequest.
const (
	sotwVersion protowire.Number = 1
	sotwNode    protowire.Number = 2
	sotwNames   protowire.Number = 3
	sotwTypeURL protowire.Number = 4
	sotwNonce   protowire.Number = 5
	sotwDetail  protowire.Number = 6
)

// Fields of DeltaDiscoveryRequest.
const (
	deltaNode        protowire.Number = 1
	deltaTypeURL     protowire.Number = 2
	deltaSubscribe   protowire.Number = 3
	deltaUnsubscribe protowire.Number = 4
	deltaInitial     protowire.Number = 5
	deltaNonce       protowire.Number = 6
	deltaDetail      protowire.Number = 7
)

func appendText(b []byte, num protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
}

func appendBytes(b []byte, num protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), v)
}

// invalidArgument is the code in the error_detail of a NACK.
const invalidArgument = 3

func appendStatus(b []byte, num protowire.Number, message string) []byte {
	var s []byte
	s = protowire.AppendVarint(protowire.AppendTag(s, 1, protowire.VarintType), invalidArgument)
	s = appendText(s, 2, message)
	return appendBytes(b, num, s)
}

// encodeList encodes what is subscribed of a type as a list of names. The wildcard is an empty
// first list, as in Envoy's requests, because some origins take "*" as a name (P64). It is "*" for
// the types whose empty first list subscribes to nothing (P21). A type never goes from names to the
// wildcard on one stream.
func encodeList(num protowire.Number, t *typeState) []byte {
	if t.subscribed.wildcard || t.wildcardEnded {
		if t.typ.NoLegacyWildcard {
			return appendText(nil, num, "*")
		}
		return []byte{}
	}
	size := 0
	for n := range t.subscribed.names.All() {
		size += nameSize(num, n)
	}
	b := make([]byte, 0, size)
	for n := range t.subscribed.names.All() {
		b = appendText(b, num, n)
	}
	return b
}

func appendVersion(b []byte, name, version string) []byte {
	b = protowire.AppendTag(b, deltaInitial, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(versionSize(name, version)))
	b = appendText(b, 1, name)
	if version != "" {
		b = appendText(b, 2, version)
	}
	return b
}

// nameSize is the encoded size of a name.
func nameSize(num protowire.Number, name string) int {
	return protowire.SizeTag(num) + protowire.SizeBytes(len(name))
}

// versionSize is the size of the value of an entry of initial_resource_versions.
func versionSize(name, version string) int {
	n := nameSize(1, name)
	if version != "" {
		n += nameSize(2, version)
	}
	return n
}

// initialSize is the size of the entry itself.
func initialSize(name, version string) int {
	return protowire.SizeTag(deltaInitial) + protowire.SizeBytes(versionSize(name, version))
}

// A delta request over MaxRequestBytes is split (P59). The names go in several requests that each
// only change names, as later requests do. Versions can only be in the first request of a type,
// beside their name. The reason is that some origins subscribe to each name that has a version, and
// others ignore a version whose name is not subscribed. So held names go first.

// heldVersion is a held resource, with the version that this origin sent.
type heldVersion struct {
	name, version string
	subscribedAs  string // the subscribed name, alias or glob
	size          int64  // of the resource, in bytes; 0: it expired here
}

// requestSmallest makes the origin send the smallest held resource again, whether or not it
// changed: that one gets an empty version, and is the first to be listed. Otherwise an origin would
// rightly stay silent if nothing changed, and look like one that does not work (P55). Of resources
// of equal size it is the first one by name.
func requestSmallest(held []heldVersion) {
	at := -1
	for i, h := range held {
		if h.size > 0 && (at < 0 || h.size < held[at].size) {
			at = i
		}
	}
	if at >= 0 {
		held[at].version = ""
		held[0], held[at] = held[at], held[0]
	}
}

// firstRequest is the content of the first request of a type.
type firstRequest struct {
	names    *xds.NameSet // nil: the wildcard
	versions []heldVersion
	leftOut  int // versions
}

// splitFirst decides which names and versions go in the first request of a type: all of them, if
// they fit. It always has a name: a request without any would subscribe to the wildcard (P21).
func splitFirst(want subscription, held []heldVersion, room int) firstRequest {
	if want.wildcard {
		o := firstRequest{}
		o.addVersions(held, room-nameSize(deltaSubscribe, "*"), func(heldVersion) int { return 0 }, func(heldVersion) {})
		return o
	}
	total := 0
	for n := range want.names.All() {
		total += nameSize(deltaSubscribe, n)
	}
	for _, h := range held {
		total += initialSize(h.name, h.version)
	}
	if total <= room {
		return firstRequest{names: want.names, versions: held}
	}
	o := firstRequest{}
	in := make(map[string]bool, len(held)) // the names that go in this request
	room = o.addVersions(held, room, func(h heldVersion) int {
		if in[h.subscribedAs] {
			return 0
		}
		return nameSize(deltaSubscribe, h.subscribedAs)
	}, func(h heldVersion) { in[h.subscribedAs] = true })
	var later []string
	for n := range want.names.All() {
		if in[n] {
			continue
		}
		if room -= nameSize(deltaSubscribe, n); room < 0 {
			later = append(later, n)
		}
	}
	if len(later) == want.names.Len() {
		later = later[1:]
	}
	o.names = want.names.Remove(later...)
	return o
}

// addVersions adds the versions that fit and returns the remaining room. extra is the space of a
// version besides its own size. added is called for each added version.
func (o *firstRequest) addVersions(held []heldVersion, room int, extra func(heldVersion) int, added func(heldVersion)) int {
	for _, h := range held {
		size := initialSize(h.name, h.version) + extra(h)
		if size > room {
			o.leftOut++
			continue
		}
		room -= size
		added(h)
		o.versions = append(o.versions, h)
	}
	return room
}

// splitChange returns how many of the names to add and to drop fit in one request. Names to add go
// first. There is always at least one name.
func splitChange(add, drop []string, room int) (now, gone []string) {
	fitting := func(names []string, num protowire.Number, atLeastOne bool) []string {
		n := slices.IndexFunc(names, func(name string) bool {
			room -= nameSize(num, name)
			return room < 0
		})
		switch {
		case n < 0:
			return names
		case n == 0 && atLeastOne:
			return names[:1]
		}
		return names[:n]
	}
	now = fitting(add, deltaSubscribe, true)
	if len(now) < len(add) {
		return now, nil
	}
	return now, fitting(drop, deltaUnsubscribe, len(now) == 0)
}
