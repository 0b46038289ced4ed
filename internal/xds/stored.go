package xds

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// Fields of a resource on disk. A message of its own around the origin's
// Resource: what the relay knows beyond that must not look like the origin's.
const (
	// storedResource is an envoy.service.discovery.v3.Resource, with the name as
	// written and the origin's version, and all else as it came.
	storedResource protowire.Number = 1
	// storedGiven is there if Given is not the origin's version.
	storedGiven protowire.Number = 2
	// storedWithdrawn are handles that it lists and does not go by any more.
	storedWithdrawn protowire.Number = 3
)

// ErrNotStorable: it is not to be kept, or only for a time that someone else
// counts.
var ErrNotStorable = errors.New("not to be stored")

// Storable reports whether a resource may outlive the process: it is one, may be
// cached (P63), and no TTL runs, which only the origin can renew (P62). Whether
// its type may be is the type's matter.
func (r *Resource) Storable() bool { return there(r) && !r.Uncacheable && r.timing == nil }

// StoredSize is the length of what AppendStored appends.
func (r *Resource) StoredSize() int {
	n := fieldSize(r.storedInner())
	if r.Given != r.OriginVersion {
		n += fieldSize(len(r.Given))
	}
	for _, h := range r.withdrawn() {
		n += fieldSize(len(h))
	}
	return n
}

func (r *Resource) storedInner() int {
	n := fieldSize(len(r.Name)) + len(r.body) + len(r.extra)
	if r.OriginVersion != "" {
		n += fieldSize(len(r.OriginVersion))
	}
	return n
}

// AppendStored appends the resource in the form that ReadStored reads. It has to
// be Storable.
func (r *Resource) AppendStored(b []byte) []byte {
	b = protowire.AppendTag(b, storedResource, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(r.storedInner()))
	b = appendString(b, resourceName, r.Name)
	if r.OriginVersion != "" {
		b = appendString(b, resourceVersion, r.OriginVersion)
	}
	b = append(b, r.body...)
	b = append(b, r.extra...)
	if r.Given != r.OriginVersion {
		b = appendString(b, storedGiven, r.Given)
	}
	for _, h := range r.withdrawn() {
		b = appendString(b, storedWithdrawn, h)
	}
	return b
}

// withdrawn are the handles that it lists and does not go by any more, sorted.
func (r *Resource) withdrawn() []string {
	if r.more == nil || !r.more.struck {
		return nil
	}
	return slices.DeleteFunc(handlesOf(r.Name, r.Aliases), func(h string) bool {
		return slices.Contains(r.more.handles, h)
	})
}

// ReadStored makes the resource of t that AppendStored wrote. It is held against
// all that one from an origin is held against (P18, P28). Nothing of it aliases
// wire.
func ReadStored(t Type, wire []byte) (*Resource, error) {
	var inner []byte
	var given *string
	var withdrawn []string
	err := eachField(wire, func(num protowire.Number, typ protowire.Type, val, _ []byte) error {
		switch {
		case typ != protowire.BytesType:
			return fmt.Errorf("field %d is not expected", num)
		case num == storedResource && inner == nil:
			inner = val
		case num == storedGiven && given == nil && validName(val):
			s := string(val)
			given = &s
		case num == storedWithdrawn:
			withdrawn = append(withdrawn, string(val))
		default:
			return fmt.Errorf("field %d is not expected", num)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	raw, err := cutDelta(t, inner)
	switch {
	case err != nil:
		return nil, err
	case !raw.HasBody() || raw.timed || raw.uncacheable:
		return nil, fmt.Errorf("%w: resource %q", ErrNotStorable, raw.Name)
	}
	r := raw.Take(t, nil)
	if given != nil && *given != r.Given {
		again := *r
		again.Given = *given
		r = &again
	}
	for _, h := range withdrawn {
		if !slices.Contains(r.Handles(), h) {
			return nil, fmt.Errorf("%w: resource %q does not go by %q", ErrUnreadable, r.Name, h)
		}
		r = r.without(h)
	}
	return r, nil
}

// AppendIdentity appends what is different for resources of one type of which the
// stored forms are different: the version of the content in the place of the body.
func (r *Resource) AppendIdentity(b []byte) []byte {
	b = append(b, r.Version[:]...)
	part := func(s string) {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	b = binary.AppendUvarint(b, uint64(len(r.body)))
	part(r.Name)
	part(r.OriginVersion)
	part(r.Given)
	b = binary.AppendUvarint(b, uint64(len(r.extra)))
	b = append(b, r.extra...)
	withdrawn := r.withdrawn()
	b = binary.AppendUvarint(b, uint64(len(withdrawn)))
	for _, h := range withdrawn {
		part(h)
	}
	return b
}
