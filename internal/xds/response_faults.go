package xds

import (
	"errors"
	"fmt"
	"slices"
)

// Faults of a resource in a response. The relay NACKs a response with one (P18).
var (
	ErrUnreadable        = errors.New("unreadable")
	ErrNameless          = errors.New("resource without a name")
	ErrLongName          = fmt.Errorf("name longer than %d bytes", MaxNameBytes)
	ErrOtherType         = errors.New("resource of another type")
	ErrDuplicateName     = errors.New("duplicate resource name")
	ErrChangedAndRemoved = errors.New("name is both in resources and in removed_resources")
	ErrAliases           = fmt.Errorf("more than %d aliases", MaxAliases)
)

// check returns the fault of r, if it has one (P18, P28). anyWire is the Any in its body.
func (r *ParsedResource) check(t Type, anyWire []byte) error {
	if r.Name == "" && t.Known() {
		return ErrNameless
	}
	if len(r.Name) > MaxNameBytes || slices.ContainsFunc(r.aliases, func(a string) bool { return len(a) > MaxNameBytes }) {
		return ErrLongName
	}
	if len(r.aliases) > MaxAliases {
		return fmt.Errorf("%w: resource %q", ErrAliases, r.Name)
	}
	if r.body == nil {
		return nil
	}
	url, _, ok := splitAny(anyWire)
	if !ok {
		return fmt.Errorf("%w: resource %q", ErrUnreadable, r.Name)
	}
	if TypeURL(url) != t.URL {
		return fmt.Errorf("%w: resource %q is a %s", ErrOtherType, r.Name, url)
	}
	return nil
}
