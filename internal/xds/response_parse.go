package xds

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Response is a DiscoveryResponse or a DeltaDiscoveryResponse from an origin. ParseResponse splits
// it into resources without decoding them. The bodies of Resources alias the message; everything
// else is copied.
type Response struct {
	TypeURL   TypeURL
	Nonce     string
	Version   string // version_info or system_version_info
	Resources []ParsedResource
	Removed   []string         // delta only
	Errors    []*ResourceError // if several are for one name, the last counts
	// LacksNames: a SotW response of an unknown type has resources without names of their own, and
	// no wrapper gives them one. The response is the full state of the type (P3).
	LacksNames bool
}

// FirstName returns the name of a resource, or of a removed one; empty: there is none.
func (r *Response) FirstName() string {
	switch {
	case len(r.Resources) > 0:
		return r.Resources[0].Name
	case len(r.Removed) > 0:
		return r.Removed[0]
	}
	return ""
}

// ParseResponse splits msg into resources. On a fault (P18, P28) it returns the first fault, and a
// Response with the fields that a NACK needs: TypeURL, Nonce and Version.
func ParseResponse(v Variant, msg []byte) (*Response, error) {
	r := new(Response)
	var raw [][2][]byte // each resource's whole field and its value
	var badError error  // the first fault in resource_errors; parsing goes on, because the NACK needs all fields
	err := eachField(msg, func(num protowire.Number, typ protowire.Type, val, whole []byte) error {
		if typ != protowire.BytesType {
			return nil
		}
		removed := v == Delta && num == respRemoved
		if (num == respVersion || num == respTypeURL || num == respNonce || removed) && !isUTF8(val) {
			return errUTF8 // requests to this origin and responses to clients must be UTF-8
		}
		if num == respErrors[v] {
			e, err := parseResourceError(val)
			if err == nil {
				r.Errors = append(r.Errors, e)
			} else if badError == nil {
				badError = err
			}
			return nil
		}
		switch num {
		case respVersion:
			r.Version = string(val)
		case respResources:
			raw = append(raw, [2][]byte{whole, val})
		case respTypeURL:
			r.TypeURL = TypeURL(val)
		case respNonce:
			r.Nonce = string(val)
		case respRemoved:
			if removed {
				r.Removed = append(r.Removed, string(val))
			}
		}
		return nil
	})
	if err != nil {
		return r, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	if badError != nil {
		return r, badError
	}
	t := TypeOf(r.TypeURL)
	r.Resources = make([]ParsedResource, 0, len(raw))
	for i, w := range raw {
		var res ParsedResource
		if v == Delta {
			res, err = parseDeltaResource(t, w[1])
		} else {
			res, err = parseSotWResource(t, w[0], w[1])
		}
		if errors.Is(err, ErrNameless) { // other errors name the resource
			return r, fmt.Errorf("resources[%d]: %w", i, err)
		}
		if err != nil {
			return r, err
		}
		r.Resources = append(r.Resources, res)
	}
	if !t.Known() {
		r.nameUnwrapped()
	}
	seen := make(map[string]bool, len(raw)+len(r.Removed))
	for i := range r.Resources {
		switch name := r.Resources[i].Name; {
		case !seen[name]:
			seen[name] = true
		case name == "":
			return r, fmt.Errorf("resources[%d]: a second %w", i, ErrNameless)
		default:
			return r, fmt.Errorf("%w: %q", ErrDuplicateName, name)
		}
	}
	for _, name := range r.Removed {
		if len(name) > MaxNameBytes {
			return r, ErrLongName
		}
		if seen[name] {
			return r, fmt.Errorf("%w: %q", ErrChangedAndRemoved, name)
		}
	}
	return r, nil
}

// nameUnwrapped names the resources of an unknown type that a SotW origin sent unwrapped (P3). Their
// names in field 1 are kept if each has one and all differ. Otherwise a single resource has no
// name, and several are named by their place in the response.
func (r *Response) nameUnwrapped() {
	unwrapped := 0
	names := make(map[string]bool)
	for i := range r.Resources {
		if r.Resources[i].unwrapped {
			unwrapped++
			names[r.Resources[i].Name] = true
		}
	}
	if len(names) == unwrapped && !names[""] {
		return
	}
	r.LacksNames = true
	for i := range r.Resources {
		if r.Resources[i].unwrapped && unwrapped > 1 {
			r.Resources[i].Name = nameOfPlace(i)
		}
	}
}

// ParsedResource is a resource in a response that is not copied yet. Its body aliases the response.
type ParsedResource struct {
	Name          string
	OriginVersion string
	aliases       []string
	body, extra   []byte
	ttl           time.Duration
	hasTTL        bool
	uncacheable   bool
	unwrapped     bool // in SotW, the origin sent it without a Resource around it
}

// HasBody reports whether r is a resource to hold. It is false for a heartbeat (P62) and for an
// alias that the origin could not resolve (P18).
func (r *ParsedResource) HasBody() bool { return r.body != nil }

// TTL returns the TTL of a resource or a heartbeat; false without one.
func (r *ParsedResource) TTL() (time.Duration, bool) { return r.ttl, r.hasTTL }

func (r *ParsedResource) newTiming() *timing {
	if !r.hasTTL {
		return nil
	}
	return &timing{ttl: r.ttl}
}

// Take returns the Resource of r. It returns held if held has the same content, version and TTL,
// and shares its bytes if only the content is the same. Otherwise it copies and hashes the content,
// unless another key holds an equal one. r must have a body; held may be nil.
func (r *ParsedResource) Take(t Type, held *Resource) *Resource {
	if held != nil && held.Name == r.Name && bytes.Equal(held.body, r.body) && bytes.Equal(held.extra, r.extra) && r.hasAllAliases(held.rare) {
		if held.OriginVersion == r.OriginVersion && r.hasTTL == (held.timing != nil) && r.ttl == held.TTL() {
			return held
		}
		again := *held // only the origin's version or the TTL is new
		again.OriginVersion, again.timing = strings.Clone(r.OriginVersion), r.newTiming()
		return &again
	}
	return r.content(t).resourceFor(r)
}

// DropBody makes r independent of the response, whose buffer is about to be reused. It drops the
// body; HasBody stays true.
func (r *ParsedResource) DropBody() {
	if r.body != nil {
		r.body = []byte{}
	}
}

// parseSotWResource parses an element of DiscoveryResponse.resources. whole is the field with its
// tag, anyWire is its value. It unwraps a wrapped Resource.
func parseSotWResource(t Type, whole, anyWire []byte) (ParsedResource, error) {
	url, value, ok := splitAny(anyWire)
	if !ok {
		return ParsedResource{}, ErrUnreadable
	}
	if url == wrapperType {
		return parseDeltaResource(t, value)
	}
	name, wrong, err := nameInBody(value)
	if err != nil {
		return ParsedResource{}, fmt.Errorf("%w: a %s: %w", ErrUnreadable, url, err)
	}
	if wrong != "" && t.Known() {
		return ParsedResource{}, fmt.Errorf("%w: field 1 of a %s must be the name, but %s", ErrNameless, url, wrong)
	}
	if !t.Known() && (wrong != "" || strings.ContainsFunc(name, unicode.IsControl)) {
		name = "" // field 1 is not a name, but for example an entry of a map
	}
	r := ParsedResource{Name: name, body: whole, unwrapped: true}
	return r, r.check(t, anyWire)
}

// parseDeltaResource parses an element of DeltaDiscoveryResponse.resources.
func parseDeltaResource(t Type, wire []byte) (ParsedResource, error) {
	var r ParsedResource
	var anyWire, ttl []byte
	err := eachField(wire, func(num protowire.Number, typ protowire.Type, val, whole []byte) error {
		if typ == protowire.BytesType {
			switch num {
			case resourceVersion:
				r.OriginVersion = string(val)
				return nil
			case resourceName:
				r.Name = string(val)
				return nil
			case resourceBody:
				if r.body != nil {
					return errors.New("resource has two bodies")
				}
				r.body, anyWire = whole, val
				return nil
			case resourceAliases:
				r.aliases = append(r.aliases, string(val))
			case resourceTTL:
				ttl = append(ttl, whole...)
				return nil
			}
		}
		r.extra = append(r.extra, whole...)
		return nil
	})
	if err != nil {
		return r, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	if !isUTF8([]byte(r.Name)) || !isUTF8([]byte(r.OriginVersion)) {
		return r, fmt.Errorf("%w: resource %q: %w", ErrUnreadable, r.Name, errUTF8)
	}
	// These fields go to clients as they are. If one were malformed, a client would NACK the whole
	// response.
	if len(r.extra)+len(ttl) > 0 {
		m := new(discoveryv3.Resource)
		if err := proto.Unmarshal(slices.Concat(r.extra, ttl), m); err != nil {
			return r, fmt.Errorf("%w: resource %q: %w", ErrUnreadable, r.Name, PlainError(err))
		}
		r.uncacheable = m.GetCacheControl().GetDoNotCache()
		if r.hasTTL = m.Ttl != nil; r.hasTTL {
			r.ttl = max(m.Ttl.AsDuration(), minTTL)
		}
	}
	return r, r.check(t, anyWire)
}

// splitAny parses a google.protobuf.Any. The value aliases b.
func splitAny(b []byte) (url string, value []byte, ok bool) {
	err := eachField(b, func(num protowire.Number, typ protowire.Type, val, _ []byte) error {
		if typ == protowire.BytesType {
			switch num {
			case 1:
				if !isUTF8(val) {
					return errUTF8
				}
				url = string(val)
			case 2:
				value = val
			}
		}
		return nil
	})
	return url, value, err == nil
}

// nameInBody reads field 1 of a body, where all types that the protocol names have their name. wrong
// says why there is no name.
func nameInBody(value []byte) (name, wrong string, err error) {
	wrong = "is missing"
	err = eachField(value, func(num protowire.Number, typ protowire.Type, val, _ []byte) error {
		if num != 1 {
			return nil
		}
		name, wrong = string(val), ""
		switch {
		case typ != protowire.BytesType || !isUTF8(val):
			wrong = "is not a string"
		case name == "":
			wrong = "is empty"
		}
		return nil
	})
	return name, wrong, err
}
