package xds

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// ResponseBody describes a response to encode, without its nonce. One encoded body serves all
// clients that get the same response.
type ResponseBody struct {
	ResourceFormat
	Type       TypeURL
	Version    string
	Identifier string // identifier of the control plane (P39)
	Resources  []*Resource
	// Heartbeats are heartbeats (P62): resources of which only the TTL is sent, at the version that
	// clients know.
	Heartbeats []*Resource
	Removed    []string // delta only; in the order in which they are encoded
	Errors     []*ResourceError
	// Now is the time at which the rest of each TTL is computed.
	Now time.Time
}

// Encode returns the encoded body as one slice of exactly Size bytes. The caller appends the nonce
// with AppendNonce: the fields of a message may come in any order.
func (b *ResponseBody) Encode() []byte {
	out := make([]byte, 0, b.Size())
	if b.Version != "" {
		out = appendString(out, respVersion, b.Version)
	}
	for _, r := range b.Resources {
		if b.unwrapped(r) {
			out = append(out, r.body...)
			continue
		}
		out = b.appendResource(out, r, true)
	}
	for _, r := range b.Heartbeats {
		out = b.appendResource(out, r, false)
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

// Size returns the length of what Encode returns, in bytes.
func (b *ResponseBody) Size() int {
	n := fieldSize(len(b.Type))
	if b.Version != "" {
		n += fieldSize(len(b.Version))
	}
	if b.Identifier != "" {
		n += fieldSize(fieldSize(len(b.Identifier)))
	}
	for _, r := range b.Resources {
		n += b.resourceFieldSize(r)
	}
	for _, r := range b.Heartbeats {
		n += fieldSize(b.elementSize(r, false))
	}
	for _, name := range b.Removed {
		n += fieldSize(len(name))
	}
	for _, e := range b.Errors {
		n += fieldSize(len(e.wire))
	}
	return n
}

// resourceFieldSize returns the size of a resource's field in the body.
func (b *ResponseBody) resourceFieldSize(r *Resource) int {
	if b.unwrapped(r) {
		return len(r.body)
	}
	return fieldSize(b.elementSize(r, true))
}

// unwrapped reports whether r stands in the response without a Resource around it. The reason is
// the client's format, or that r has no name that a Resource could give (P3).
func (b *ResponseBody) unwrapped(r *Resource) bool {
	return b.Variant == SotW && (!b.WithTTL || IsPlace(r.Name))
}

// appendResource appends an element of resources: a Resource, in SotW wrapped in an Any. withBody
// is false for a heartbeat.
func (b *ResponseBody) appendResource(out []byte, r *Resource, withBody bool) []byte {
	out = protowire.AppendTag(out, respResources, protowire.BytesType)
	out = protowire.AppendVarint(out, uint64(b.elementSize(r, withBody)))
	if b.Variant == SotW {
		out = appendString(out, anyTypeURL, wrapperType)
		out = protowire.AppendTag(out, anyValue, protowire.BytesType)
		out = protowire.AppendVarint(out, uint64(b.resourceSize(r, withBody)))
	}
	out = appendString(out, resourceName, r.Name)
	out = appendString(out, resourceVersion, b.versionOf(r))
	if withBody {
		out = append(out, r.body...)
		out = append(out, r.extra...)
	}
	if b.WithTTL && r.timing != nil {
		out = appendTTL(out, r.RemainingTTL(b.Now))
	}
	return out
}

// elementSize returns the size of an element of resources without its tag and length.
func (b *ResponseBody) elementSize(r *Resource, withBody bool) int {
	n := b.resourceSize(r, withBody)
	if b.Variant == SotW {
		n = fieldSize(len(wrapperType)) + fieldSize(n)
	}
	return n
}

func (b *ResponseBody) resourceSize(r *Resource, withBody bool) int {
	n := fieldSize(len(r.Name)) + fieldSize(b.versionSize(r))
	if withBody {
		n += len(r.body) + len(r.extra)
	}
	if b.WithTTL && r.timing != nil {
		n += ttlSize(r.RemainingTTL(b.Now))
	}
	return n
}

// versionOf returns the version field of a Resource. In SotW it is the version_info, also in a
// heartbeat (P62).
func (b *ResponseBody) versionOf(r *Resource) string {
	switch {
	case b.Variant == SotW:
		return b.Version
	case r.Unresolved():
		return r.OriginVersion // an unresolved alias has no content version
	}
	return b.ResourceFormat.Version(r)
}

func (b *ResponseBody) versionSize(r *Resource) int {
	if b.Variant == Delta && !b.OriginVersions && !r.Unresolved() {
		return 2 * len(r.Version) // hexadecimal digits
	}
	return len(b.versionOf(r))
}

// AppendNonce appends the nonce field, which completes a body.
func AppendNonce(dst, nonce []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(dst, respNonce, protowire.BytesType), nonce)
}
