package xds

import (
	"errors"
	"fmt"

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
)

// ErrNotStorable: it is not to be kept, or only for a time that someone else
// counts.
var ErrNotStorable = errors.New("not to be stored")

// Storable reports whether a resource may outlive the process: it is one, may be
// cached (P63), and no TTL runs, which only the origin can renew (P62). Whether
// its type may be is the type's matter.
func (r *Resource) Storable() bool { return there(r) && !r.Uncacheable && r.timing == nil }

func (r *Resource) storedInner() int {
	n := fieldSize(len(r.Name)) + len(r.body) + len(r.extra)
	if r.OriginVersion != "" {
		n += fieldSize(len(r.OriginVersion))
	}
	return n
}

// AppendStored appends the resource in the form that ReadStored reads. It has to
// be Storable. A resource that is read back goes by all handles that it lists, also by
// one that the origin had withdrawn.
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
	return b
}

// ReadStored makes the resource of t that AppendStored wrote. It is held against
// all that one from an origin is held against (P18, P28). Nothing of it aliases
// wire.
func ReadStored(t Type, wire []byte) (*Resource, error) {
	var inner []byte
	var given *string
	err := eachField(wire, func(num protowire.Number, typ protowire.Type, val, _ []byte) error {
		switch {
		case typ != protowire.BytesType:
			return fmt.Errorf("field %d is not expected", num)
		case num == storedResource && inner == nil:
			inner = val
		case num == storedGiven && given == nil && validName(val):
			s := string(val)
			given = &s
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
	return r, nil
}
