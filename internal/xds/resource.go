package xds

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// MaxNameBytes bounds a resource name (P28): a longer one from a client is
// refused, from an origin a fault.
const MaxNameBytes = 2048

// Version is a content version: the first 128 bits of a SHA-256. Versions are
// made from what they name, the same in every replica and for ever (P61).
type Version [16]byte

// String is the version as it stands in responses: 32 hexadecimal digits.
func (v Version) String() string { return hex.EncodeToString(v[:]) }

// add returns v+o mod 2^128, and sub v-o: a set's version follows its changes
// at the cost of the change.
func (v Version) add(o Version) Version { return v.combine(o, 0) }
func (v Version) sub(o Version) Version { return v.combine(o, 0xff) }

func (v Version) combine(o Version, flip byte) Version {
	carry := uint16(flip & 1)
	for i := len(v) - 1; i >= 0; i-- {
		t := uint16(v[i]) + uint16(o[i]^flip) + carry
		v[i], carry = byte(t), t>>8
	}
	return v
}

// Fields of envoy.service.discovery.v3.Resource.
const (
	resourceVersion protowire.Number = 1
	resourceBody    protowire.Number = 2
	resourceName    protowire.Number = 3
	resourceAliases protowire.Number = 4
	resourceTTL     protowire.Number = 6
)

// wrapperType is the type of an Any that wraps a Resource in SotW.
const wrapperType = "type.googleapis.com/envoy.service.discovery.v3.Resource"

// Resource is one resource as the origin sent it. Nothing of it is ever decoded
// and encoded again (P39). It is immutable.
type Resource struct {
	*content // shared with all keys that hold an equal one

	// OriginVersion is the origin's own version of it, "" if it gave none. It is
	// sent back to that origin (P55) and plays no part in equality.
	OriginVersion string
	// Given is the origin's version by which clients know this content, if they
	// are given the origin's (P61): an equal resource under a newer one is no
	// change, so it keeps the one that clients have.
	Given string

	timing *timing // nil: no TTL
	stored bool    // it comes from the store, and no origin has answered it yet (P66)
	// more is nil for a resource that goes by its name alone.
	more *more
}

// Size is the memory that its bytes take, in bytes.
func (r *Resource) Size() int64 {
	n := len(r.Name) + len(r.body) + len(r.extra)
	for _, h := range r.Handles() {
		n += len(h)
	}
	return int64(n)
}

// Same reports whether no client could see a difference between the two, but
// by a heartbeat: body, aliases and all other fields are equal, and both have a
// TTL or none, whatever the origin's version.
func (r *Resource) Same(o *Resource) bool {
	return r == o || r != nil && o != nil && (r.timing == nil) == (o.timing == nil) && r.sameBut(o)
}

// sameBut is Same but for the TTL, and sameBody but for all fields beside the
// body.
func (r *Resource) sameBut(o *Resource) bool {
	return r.sameBody(o) && bytes.Equal(r.extra, o.extra)
}

func (r *Resource) sameBody(o *Resource) bool {
	return r.content == o.content || r.Name == o.Name && bytes.Equal(r.body, o.body)
}

// shares reports whether o holds the very bytes of r.
func (r *Resource) shares(o *Resource) bool { return there(o) && &r.body[0] == &o.body[0] }

// Any returns the wire form of the google.protobuf.Any; not to be changed.
func (r *Resource) Any() []byte {
	return anyOf(r.body)
}

// anyOf returns the value of a body, whose tag an origin may have written
// longer than needed.
func anyOf(body []byte) []byte {
	_, _, tag := protowire.ConsumeTag(body)
	_, size := protowire.ConsumeVarint(body[tag:])
	return body[tag+size:]
}

// TypeURL is the type of the body.
func (r *Resource) TypeURL() TypeURL {
	url, _, _ := splitAny(r.Any())
	return TypeURL(url)
}

// Raw is a resource cut out of a response and not copied yet: its slices alias
// the response.
type Raw struct {
	Name          string
	OriginVersion string
	aliases       []string
	body, extra   []byte
	ttl           time.Duration
	timed         bool // there is a TTL
	uncacheable   bool
}

// HasBody is false for a heartbeat (P62) and for an alias that the origin
// could not resolve (P18): neither is a resource to hold.
func (r *Raw) HasBody() bool { return r.body != nil }

// Sever has r alias the response no more, whose buffer is used again. That it has
// a body can still be told.
func (r *Raw) Sever() {
	if r.body != nil {
		r.body = []byte{}
	}
}

// TTL is that of a resource or a heartbeat; false if there is none.
func (r *Raw) TTL() (time.Duration, bool) { return r.ttl, r.timed }

// NewResource makes the resource of name with this Any on the wire. It copies
// anyWire. The tests of all packages use it.
func NewResource(t Type, name string, anyWire []byte) (*Resource, error) {
	body := protowire.AppendTag(make([]byte, 0, len(anyWire)+8), resourceBody, protowire.BytesType)
	r := &Raw{body: protowire.AppendBytes(body, anyWire)}
	r.Name = name
	if err := r.check(t, anyWire); err != nil {
		return nil, err
	}
	return r.Take(t, nil), nil
}

// Take makes the Resource of r, or returns held if nothing but memory would
// differ. Only what no key holds is copied and given a version. r must be checked
// and have a body.
func (r *Raw) Take(t Type, held *Resource) *Resource {
	if held != nil && held.Name == r.Name && bytes.Equal(held.body, r.body) && bytes.Equal(held.extra, r.extra) && r.likeMore(held.more) {
		if held.OriginVersion == r.OriginVersion && r.timed == (held.timing != nil) && r.ttl == held.TTL() {
			return held
		}
		again := *held // the origin's version or the TTL alone is new: share the bytes
		again.OriginVersion, again.timing = strings.Clone(r.OriginVersion), r.timing()
		return &again
	}
	return r.content(t).resource(r)
}

func (r *Raw) timing() *timing {
	if !r.timed {
		return nil
	}
	return &timing{ttl: r.ttl}
}

// contentVersion is the SHA-256 of the parts, each after its length as uvarint,
// cut to 128 bits. It is fixed for ever: clients bring it back after a
// reconnect, to any replica of any build.
func contentVersion(url string, value []byte, aliases []string) Version {
	h := sha256.New()
	var n [binary.MaxVarintLen64]byte
	part := func(b []byte) {
		h.Write(n[:binary.PutUvarint(n[:], uint64(len(b)))])
		h.Write(b)
	}
	part([]byte(url))
	part(value)
	for _, a := range aliases {
		part([]byte(a))
	}
	var sum [sha256.Size]byte
	return Version(h.Sum(sum[:0])[:16])
}

// memberVersion is what a resource adds to the version of a set.
func memberVersion(name string, v Version) Version {
	sum := sha256.Sum256(append([]byte(name), v[:]...))
	return Version(sum[:16])
}

// Faults of a resource in a response, each a reason to NACK it (P18).
var (
	ErrUnreadable = errors.New("unreadable")
	ErrNameless   = errors.New("resource without a name")
	ErrLongName   = fmt.Errorf("name longer than %d bytes", MaxNameBytes)
	ErrOtherType  = errors.New("resource of another type")
	ErrTwice      = errors.New("the same name twice")
	ErrBoth       = errors.New("name both in resources and in removed_resources")
	ErrAliases    = fmt.Errorf("more than %d aliases", MaxAliases)
)

// check holds the cut resource against P18 and P28.
func (r *Raw) check(t Type, anyWire []byte) error {
	if r.Name == "" {
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

// cutSotW cuts an element of DiscoveryResponse.resources; whole is the field
// with its tag, anyWire its value. A wrapped Resource is unwrapped.
func cutSotW(t Type, whole, anyWire []byte) (Raw, error) {
	url, value, ok := splitAny(anyWire)
	if !ok {
		return Raw{}, ErrUnreadable
	}
	if url == wrapperType {
		return cutDelta(t, value)
	}
	name, wrong, err := selfName(value)
	if err != nil {
		return Raw{}, fmt.Errorf("%w: a %s: %w", ErrUnreadable, url, err)
	}
	if wrong != "" {
		return Raw{}, fmt.Errorf("%w: field 1 of a %s, its name, %s", ErrNameless, url, wrong)
	}
	r := Raw{Name: name, body: whole}
	return r, r.check(t, anyWire)
}

// cutDelta cuts an element of DeltaDiscoveryResponse.resources.
func cutDelta(t Type, wire []byte) (Raw, error) {
	var r Raw
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
					return errors.New("two bodies")
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
	if !validName([]byte(r.Name)) || !validName([]byte(r.OriginVersion)) {
		return r, fmt.Errorf("%w: resource %q: %w", ErrUnreadable, r.Name, errUTF8)
	}
	// What passes through must not cost a client the whole response.
	if len(r.extra)+len(ttl) > 0 {
		m := new(discoveryv3.Resource)
		if err := proto.Unmarshal(slices.Concat(r.extra, ttl), m); err != nil {
			return r, fmt.Errorf("%w: resource %q: %w", ErrUnreadable, r.Name, Plain(err))
		}
		r.uncacheable = m.GetCacheControl().GetDoNotCache()
		if r.timed = m.Ttl != nil; r.timed {
			r.ttl = max(m.Ttl.AsDuration(), minTTL)
		}
	}
	return r, r.check(t, anyWire)
}

// splitAny reads a google.protobuf.Any; the value aliases b.
func splitAny(b []byte) (url string, value []byte, ok bool) {
	err := eachField(b, func(num protowire.Number, typ protowire.Type, val, _ []byte) error {
		if typ == protowire.BytesType {
			switch num {
			case 1:
				if !validName(val) {
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

// selfName reads field 1 of a body, where all types that the protocol names,
// and others by P3, keep their name. wrong says why there is none.
func selfName(value []byte) (name, wrong string, err error) {
	wrong = "is missing"
	err = eachField(value, func(num protowire.Number, typ protowire.Type, val, _ []byte) error {
		if num != 1 {
			return nil
		}
		name, wrong = string(val), ""
		switch {
		case typ != protowire.BytesType || !validName(val):
			wrong = "is no string"
		case name == "":
			wrong = "is empty"
		}
		return nil
	})
	return name, wrong, err
}

// Fields of envoy.config.cluster.v3.Cluster that say which load assignment it
// waits for.
const (
	clusterType      protowire.Number = 2
	clusterEDS       protowire.Number = 3
	edsServiceName   protowire.Number = 2
	discoveryTypeEDS                  = 3
)

// edsName is the load assignment of a cluster on the wire: its
// eds_cluster_config.service_name, else its name; "" if it does not use EDS.
func edsName(name string, cluster []byte) string {
	uses, service := false, ""
	_ = eachField(cluster, func(num protowire.Number, typ protowire.Type, val, _ []byte) error {
		switch {
		case num == clusterType && typ == protowire.VarintType:
			v, _ := protowire.ConsumeVarint(val)
			uses = v == discoveryTypeEDS
		case num == clusterEDS && typ == protowire.BytesType:
			_ = eachField(val, func(num protowire.Number, typ protowire.Type, val, _ []byte) error {
				if num == edsServiceName && typ == protowire.BytesType {
					service = string(val)
				}
				return nil
			})
		}
		return nil
	})
	switch {
	case !uses:
		return ""
	case service != "":
		return service
	default:
		return name
	}
}
