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

// ResourceError is what an origin says of a name for which it has no resource
// to give (P39). It is immutable.
type ResourceError struct {
	Name string
	Code codes.Code

	wire []byte // the message as it came
}

// Absent reports whether the origin says by it that there is no such resource,
// as removed_resources would (P25). Of what a wildcard covers it says nothing.
func (e *ResourceError) Absent() bool {
	return e.Code == codes.NotFound && e.Name != "" && e.Name != "*"
}

// Wire is the message as it came, but that a long one was cut. It is shared and
// not to be changed.
func (e *ResourceError) Wire() []byte { return e.wire }

// Same reports whether the origin said the same.
func (e *ResourceError) Same(o *ResourceError) bool {
	return e == o || e != nil && o != nil && bytes.Equal(e.wire, o.wire)
}

func (e *ResourceError) size() int64 {
	if e == nil {
		return 0
	}
	return int64(len(e.Name) + len(e.wire))
}

// Bounds of what is kept of resource_errors, in bytes: of one, and of all under
// one type of a key.
const (
	maxErrorBytes  = 16 << 10
	maxErrorsBytes = 16 << 20
	maxErrorText   = 4 << 10
)

// cutError reads an element of resource_errors, which it copies. One over the
// bound loses its details, and if need be the end of its message.
func cutError(wire []byte) (*ResourceError, error) {
	m := new(discoveryv3.ResourceError)
	if err := proto.Unmarshal(wire, m); err != nil {
		return nil, fmt.Errorf("%w: resource_errors: %w", ErrUnreadable, Plain(err))
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
			Message: strings.ToValidUTF8(text[:min(len(text), maxErrorText)], ""),
		},
	}
	var err error
	if e.wire, err = proto.Marshal(short); err != nil {
		return nil, fmt.Errorf("%w: resource_errors: %w", ErrUnreadable, err)
	}
	return e, nil
}

// errs are the errors of an entry: what was said to the wildcard, and to who asked
// for the name. The one is no answer to the other (P51, P57). Where both were told
// the same, it is one pointer.
type errs struct{ wild, named *ResourceError }

// of is what was said to one of the two.
func (e *errs) of(wild bool) **ResourceError {
	if wild {
		return &e.wild
	}
	return &e.named
}

func (e errs) any() bool { return e != errs{} }

func (e errs) size() int64 { return e.wild.size() + e.named.size() }

// error is what a client with sub is to hear; listed says that sub has the name.
// Who asks for the name hears what was said to the wildcard if that is all there
// is; what was said to the name is nothing to the wildcard.
func (e entry) error(sub *Subscription, listed bool) *ResourceError {
	if !e.errs.any() {
		return nil
	}
	first, second := e.errs.named, e.errs.wild
	switch {
	case sub.Wildcard:
		first, second = e.errs.wild, nil
		if listed || there(e.named) && e.named.handled(sub.Names) {
			second = e.errs.named
		}
	case !listed && e.visible(sub, false) == nil:
		return nil
	}
	if first != nil {
		return first
	}
	return second
}

// fail keeps an error, beside what is held; wild says that it came for the
// wildcard. One that says the same as before is no news, but to who has not heard
// it. It reports whether it is news, and false in kept if there was no room.
func (b *Builder) fail(err *ResourceError, wild bool) (news, kept bool) {
	e, _ := b.entries.Get(err.Name)
	before := e.errs
	if was, noted := b.pending[err.Name]; noted {
		before = was.errs // the same update may have cleared it
	}
	for _, known := range [...]*ResourceError{*before.of(!wild), *before.of(wild)} {
		if err.Same(known) {
			err = known
		}
	}
	at := e.errs.of(wild)
	if err == *at {
		return false, true
	}
	if b.errorBytes+err.size()-(*at).size() > maxErrorsBytes {
		return false, false
	}
	*at = err
	b.set(err.Name, e)
	return true, true
}

// NoRoom returns how many errors were not kept since the last call, for want of
// room.
func (b *Builder) NoRoom() int {
	n := b.noRoom
	b.noRoom = 0
	return n
}

// Error returns what the origin last said of a name that sub covers, or of a
// resource that it covers by a handle, instead of giving it; nil if nothing. What
// it said to who asked for the name is nothing to the wildcard (P51).
func (s *Snapshot) Error(sub *Subscription, name string) *ResourceError {
	if s == nil || s.errors == 0 {
		return nil
	}
	e, _ := s.entries.Get(name)
	return e.error(sub, sub.Names.Has(name))
}

// Errors calls yield for each error of a name that sub covers, in order of
// names.
func (s *Snapshot) Errors(sub *Subscription, yield func(*ResourceError) bool) {
	if s == nil || s.errors == 0 {
		return
	}
	if sub.Wildcard {
		s.entries.Scan(func(name string, e entry) bool {
			err := e.error(sub, sub.Names.Has(name))
			return err == nil || yield(err)
		})
		return
	}
	for _, name := range s.reached(sub) {
		if e := s.Error(sub, name); e != nil && !yield(e) {
			return
		}
	}
}
