package xds

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Body describes a response body to build: everything but the nonce.
type Body struct {
	Form
	Type       TypeURL
	Version    string
	Identifier string // of the control plane
	Resources  []*Resource
	// Beats are resources of which only the TTL goes out, at the version that
	// clients know them by: heartbeats (P62).
	Beats   []*Resource
	Removed []string // incremental only; as they are to be written
	Errors  []*ResourceError
	// Now is when TTLs are what they are.
	Now time.Time
}

// Encode builds the body as one contiguous slice. A nonce is appended to it on
// the wire as a field of its own (AppendNonce): fields may come in any order.
func (b *Body) Encode() []byte {
	out := make([]byte, 0, b.Size())
	if b.Version != "" {
		out = appendString(out, respVersion, b.Version)
	}
	for _, r := range b.Resources {
		if b.bare() {
			out = append(out, r.body...)
			continue
		}
		out = b.appendEntry(out, r, true)
	}
	for _, r := range b.Beats {
		out = b.appendEntry(out, r, false)
	}
	out = appendString(out, respTypeURL, string(b.Type))
	for _, name := range b.Removed {
		out = appendString(out, respRemoved, name)
	}
	for _, e := range b.Errors {
		out = protowire.AppendTag(out, respErrors[b.Variant], protowire.BytesType)
		out = protowire.AppendBytes(out, e.wire)
	}
	if b.Identifier != "" {
		out = protowire.AppendTag(out, respControlPlane[b.Variant], protowire.BytesType)
		out = protowire.AppendVarint(out, uint64(fieldSize(len(b.Identifier))))
		out = appendString(out, 1, b.Identifier)
	}
	return out
}

// Size is the length of what Encode returns.
func (b *Body) Size() int {
	n := fieldSize(len(b.Type))
	if b.Version != "" {
		n += fieldSize(len(b.Version))
	}
	if b.Identifier != "" {
		n += fieldSize(fieldSize(len(b.Identifier)))
	}
	for _, r := range b.Resources {
		n += b.resourceCost(r)
	}
	for _, r := range b.Beats {
		n += fieldSize(b.entrySize(r, false))
	}
	for _, name := range b.Removed {
		n += fieldSize(len(name))
	}
	for _, e := range b.Errors {
		n += fieldSize(len(e.wire))
	}
	return n
}

// resourceCost is what a resource adds to the Size.
func (b *Body) resourceCost(r *Resource) int {
	if b.bare() {
		return len(r.body)
	}
	return fieldSize(b.entrySize(r, true))
}

// bare: resources stand in the response without a Resource around them.
func (b *Body) bare() bool { return b.Variant == SotW && !b.Timed }

// appendEntry appends an element of resources; in SotW the Resource is wrapped
// in an Any.
func (b *Body) appendEntry(out []byte, r *Resource, whole bool) []byte {
	out = protowire.AppendTag(out, respResources, protowire.BytesType)
	out = protowire.AppendVarint(out, uint64(b.entrySize(r, whole)))
	if b.Variant == SotW {
		out = appendString(out, anyTypeURL, wrapperType)
		out = protowire.AppendTag(out, anyValue, protowire.BytesType)
		out = protowire.AppendVarint(out, uint64(b.resourceSize(r, whole)))
	}
	out = appendString(out, resourceName, r.Name)
	out = appendString(out, resourceVersion, b.versionOf(r))
	if whole {
		out = append(out, r.body...)
		out = append(out, r.extra...)
	}
	if b.Timed && r.timing != nil {
		out = appendTTL(out, r.Left(b.Now))
	}
	return out
}

// entrySize is the size of an element of resources, without its tag and length.
func (b *Body) entrySize(r *Resource, whole bool) int {
	n := b.resourceSize(r, whole)
	if b.Variant == SotW {
		n = fieldSize(len(wrapperType)) + fieldSize(n)
	}
	return n
}

func (b *Body) resourceSize(r *Resource, whole bool) int {
	n := fieldSize(len(r.Name)) + fieldSize(b.versionSize(r))
	if whole {
		n += len(r.body) + len(r.extra)
	}
	if b.Timed && r.timing != nil {
		n += ttlSize(r.Left(b.Now))
	}
	return n
}

// versionOf is the version of a Resource. In SotW a client knows it by the
// version_info, also in a heartbeat (P62).
func (b *Body) versionOf(r *Resource) string {
	switch {
	case b.Variant == SotW:
		return b.Version
	case r.Unresolved():
		return r.OriginVersion // without content there is no other
	}
	return b.Form.Version(r)
}

func (b *Body) versionSize(r *Resource) int {
	if b.Variant == Delta && !b.OriginVersions && !r.Unresolved() {
		return 2 * len(r.Version) // hexadecimal
	}
	return len(b.versionOf(r))
}

// Fields of google.protobuf.Any.
const (
	anyTypeURL protowire.Number = 1
	anyValue   protowire.Number = 2
)
