package xds

import (
	"bytes"
	"fmt"
	"strings"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// ResourceError is an origin's statement about a name for which it gives no resource: an element of
// resource_errors (P39). It is immutable.
type ResourceError struct {
	Name string
	Code codes.Code

	wire []byte // the encoded message
}

// Absent reports whether the error says that the resource does not exist, as removed_resources
// would (P25). It says nothing about what a wildcard covers.
func (e *ResourceError) Absent() bool {
	return e.Code == codes.NotFound && e.Name != "" && e.Name != "*"
}

// Wire returns the message as the origin sent it; an oversized one is shortened. It is shared, and
// callers must not change it.
func (e *ResourceError) Wire() []byte { return e.wire }

// Same reports whether both errors say the same. Both may be nil.
func (e *ResourceError) Same(o *ResourceError) bool {
	return e == o || e != nil && o != nil && bytes.Equal(e.wire, o.wire)
}

// Size returns the size of the error in bytes. e may be nil.
func (e *ResourceError) Size() int64 {
	if e == nil {
		return 0
	}
	return int64(len(e.Name) + len(e.wire))
}

// Limits for one element of resource_errors, in bytes.
const (
	maxErrorBytes     = 16 << 10
	maxErrorTextBytes = 4 << 10
)

// parseResourceError reads an element of resource_errors and copies it. If it is longer than
// maxErrorBytes, it keeps only the name, the code and the first maxErrorTextBytes of the message.
func parseResourceError(wire []byte) (*ResourceError, error) {
	m := new(discoveryv3.ResourceError)
	if err := proto.Unmarshal(wire, m); err != nil {
		return nil, fmt.Errorf("%w: resource_errors: %w", ErrUnreadable, PlainError(err))
	}
	e := &ResourceError{Name: m.GetResourceName().GetName(), Code: codes.Code(m.GetErrorDetail().GetCode()), wire: bytes.Clone(wire)}
	if len(e.Name) > MaxNameBytes {
		return nil, ErrLongName
	}
	if len(e.wire) <= maxErrorBytes {
		return e, nil
	}
	text := m.GetErrorDetail().GetMessage()
	short := &discoveryv3.ResourceError{
		ResourceName: &discoveryv3.ResourceName{Name: e.Name},
		ErrorDetail: &statuspb.Status{
			Code:    m.GetErrorDetail().GetCode(),
			Message: strings.ToValidUTF8(text[:min(len(text), maxErrorTextBytes)], ""),
		},
	}
	var err error
	if e.wire, err = proto.Marshal(short); err != nil {
		return nil, fmt.Errorf("%w: resource_errors: %w", ErrUnreadable, err)
	}
	return e, nil
}
