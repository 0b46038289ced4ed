package xds

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// Fields of a resource on disk. The relay's own fields are outside of the origin's Resource, so
// that they cannot be confused with fields of the origin.
const (
	// storedResource is an envoy.service.discovery.v3.Resource with the name, the origin's version,
	// and all other fields as the origin sent them.
	storedResource protowire.Number = 1
	// storedGiven is present if GivenVersion differs from the origin's version.
	storedGiven protowire.Number = 2
)

// ErrNotStorable: the resource must not be stored (see Storable).
var ErrNotStorable = errors.New("must not be stored")

// Storable reports whether the resource may be stored on disk. It must have a body, be cacheable
// (P63) and have no TTL, which only the origin can renew (P62). Whether its type may be stored is
// for the caller to decide.
func (r *Resource) Storable() bool { return r.HasBody() && !r.Uncacheable && r.timing == nil }

// AppendStored appends the resource in the format that ReadStored reads. The resource must be
// Storable. Removed aliases come back: a resource that is read has all aliases that it lists.
func (r *Resource) AppendStored(b []byte) []byte {
	resource := appendString(nil, resourceName, r.Name)
	if r.OriginVersion != "" {
		resource = appendString(resource, resourceVersion, r.OriginVersion)
	}
	resource = append(append(resource, r.body...), r.extra...)
	b = protowire.AppendBytes(protowire.AppendTag(b, storedResource, protowire.BytesType), resource)
	if r.GivenVersion != r.OriginVersion {
		b = appendString(b, storedGiven, r.GivenVersion)
	}
	return b
}

// ReadStored parses a resource of type t that AppendStored wrote. It applies the same checks as to
// a resource from an origin (P18, P28). The result does not alias wire.
func ReadStored(t Type, wire []byte) (*Resource, error) {
	var inner []byte
	var given *string
	err := eachField(wire, func(num protowire.Number, typ protowire.Type, val, _ []byte) error {
		switch {
		case typ != protowire.BytesType:
			return fmt.Errorf("field %d is not expected", num)
		case num == storedResource && inner == nil:
			inner = val
		case num == storedGiven && given == nil && isUTF8(val):
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
	raw, err := parseDeltaResource(t, inner)
	switch {
	case err != nil:
		return nil, err
	case !raw.HasBody() || raw.hasTTL || raw.uncacheable:
		return nil, fmt.Errorf("%w: resource %q", ErrNotStorable, raw.Name)
	}
	r := raw.Take(t, nil)
	if given != nil && *given != r.GivenVersion {
		again := *r
		again.GivenVersion = *given
		r = &again
	}
	return r, nil
}

// MarkStored returns the resource with its stored mark set or cleared. It returns r itself if
// nothing changes, else a copy.
func (r *Resource) MarkStored(stored bool) *Resource {
	if r.stored == stored {
		return r
	}
	out := *r
	out.stored = stored
	return &out
}

// IsStored reports whether r is a resource from the store that no origin has confirmed yet (P66). r
// may be nil.
func (r *Resource) IsStored() bool { return r.HasBody() && r.stored }
