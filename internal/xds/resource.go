package xds

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// MaxNameBytes is the maximum length of a resource name in bytes (P28). The relay refuses a longer
// name from a client. A longer name from an origin is a fault.
const MaxNameBytes = 2048

// PlacePrefix begins the name of a resource that is told apart by its place in the response (P3). It
// has a control character, as no name in a body of an unknown type has.
const PlacePrefix = "\x00place "

// nameOfPlace returns the name of resources[i] of a response whose resources have no names of their
// own. Names sort like places.
func nameOfPlace(i int) string { return fmt.Sprintf("%s%06d", PlacePrefix, i) }

// IsPlace reports whether a resource's name only says its place in a SotW response. Delta clients
// cannot be told of such a resource (P3).
func IsPlace(name string) bool { return strings.HasPrefix(name, PlacePrefix) }

// Resource is one resource as the origin sent it. The relay never decodes and re-encodes it (P39).
// It is immutable.
type Resource struct {
	*content // shared by all keys that have an equal resource

	// OriginVersion is the origin's version of the resource, "" if it gave none. The relay sends it
	// back to that origin on a reconnect (P55). Equality ignores it.
	OriginVersion string
	// GivenVersion is the origin's version by which clients know this content, under the option
	// "versions: origin" (P61). An equal resource under a newer version is no change, so it keeps
	// the GivenVersion of the earlier one.
	GivenVersion string

	timing *timing // nil without a TTL
	stored bool    // the resource comes from the store, and no origin has answered for it yet (P66)
	// resent counts how often the origin sent the equal resource again in a way that concerns all
	// clients (P33). It makes resources differ that are otherwise the same.
	resent uint32
	// rare is nil for a resource with no alias and no glob.
	rare *rareFields
}

// NewResource returns the resource with this name and this encoded Any. It copies anyWire. Tests
// use it; origins' resources come from ParsedResource.Take. The error is one of those of
// ParseResponse.
func NewResource(t Type, name string, anyWire []byte) (*Resource, error) {
	body := protowire.AppendTag(make([]byte, 0, len(anyWire)+8), resourceBody, protowire.BytesType)
	r := &ParsedResource{body: protowire.AppendBytes(body, anyWire)}
	r.Name = name
	if err := r.check(t, anyWire); err != nil {
		return nil, err
	}
	return r.Take(t, nil), nil
}

// NewPlaceholder returns a Resource without a body. It marks the place of a resource.
func NewPlaceholder(name string) *Resource { return &Resource{content: &content{Name: name}} }

// HasBody reports whether r is a resource. It is false for nil and for a mark in place of a
// resource.
func (r *Resource) HasBody() bool { return r != nil && r.body != nil }

// Any returns the encoded google.protobuf.Any. Callers must not change it. r must have a body.
func (r *Resource) Any() []byte {
	return anyInBody(r.body)
}

// anyInBody returns the Any in a body. It parses the tag, because an origin may encode a tag in
// more bytes than needed.
func anyInBody(body []byte) []byte {
	_, _, tag := protowire.ConsumeTag(body)
	_, size := protowire.ConsumeVarint(body[tag:])
	return body[tag+size:]
}

// TypeURL returns the type of the body. r must have a body.
func (r *Resource) TypeURL() TypeURL {
	url, _, _ := splitAny(r.Any())
	return TypeURL(url)
}

// Size returns the size of the resource's names, body and other fields in bytes.
func (r *Resource) Size() int64 {
	n := len(r.Name) + len(r.body) + len(r.extra)
	for _, a := range r.AliasesAndGlob() {
		n += len(a)
	}
	return int64(n)
}

// Same reports whether no client could see a difference between r and o, apart from heartbeats.
// Their names, bodies, aliases and other fields are equal, and both have a TTL or neither has. The
// origin's version and the length of the TTL do not count. After Resent there is a difference. Both
// may be nil.
func (r *Resource) Same(o *Resource) bool {
	return r == o || r != nil && o != nil && (r.timing == nil) == (o.timing == nil) && r.sameExceptTTL(o)
}

// sameExceptTTL is Same without the comparison of TTLs.
func (r *Resource) sameExceptTTL(o *Resource) bool {
	return r.sameBody(o) && bytes.Equal(r.extra, o.extra)
}

func (r *Resource) sameBody(o *Resource) bool {
	return r.resent == o.resent && (r.content == o.content || r.Name == o.Name && bytes.Equal(r.body, o.body))
}

// Resent returns a copy of the resource for clients that have r and are to be sent it again (P33).
func (r *Resource) Resent() *Resource {
	out := *r
	out.resent++
	out.GivenVersion = out.OriginVersion
	return &out
}

// ResentAs reports whether o is what Resent made of r. Both may be nil.
func (r *Resource) ResentAs(o *Resource) bool {
	return r.HasBody() && o.HasBody() && r.content == o.content && r.resent != o.resent && r.rare == o.rare && r.stored == o.stored
}

// SharesBody reports whether r and o have their body in the same memory. r must have a body; o may
// be nil.
func (r *Resource) SharesBody(o *Resource) bool { return o.HasBody() && &r.body[0] == &o.body[0] }

// Version is a content version: the first 128 bits of a SHA-256. It depends on the content alone,
// so it is the same in every replica and in every build (P61).
type Version [16]byte

// String returns the version as responses have it: 32 hexadecimal digits.
func (v Version) String() string { return hex.EncodeToString(v[:]) }

// Add returns v+o mod 2^128. The version of a set is the sum over its members, so updating it costs
// only as much as the change.
func (v Version) Add(o Version) Version { return v.combine(o, 0) }

// Sub returns v-o mod 2^128.
func (v Version) Sub(o Version) Version { return v.combine(o, 0xff) }

// combine adds o to v, or subtracts it if flip is 0xff (two's complement).
func (v Version) combine(o Version, flip byte) Version {
	carry := uint16(flip & 1)
	for i := len(v) - 1; i >= 0; i-- {
		t := uint16(v[i]) + uint16(o[i]^flip) + carry
		v[i], carry = byte(t), t>>8
	}
	return v
}

// contentVersion returns the first 128 bits of the SHA-256 of url, value and aliases, each after
// its length as a uvarint. This must never change: clients send versions back after a reconnect, to
// any replica of any build.
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

// memberVersion returns what a resource adds to the version of a set.
func memberVersion(name string, v Version) Version {
	sum := sha256.Sum256(append([]byte(name), v[:]...))
	return Version(sum[:16])
}

// Fields of envoy.config.cluster.v3.Cluster that name the load assignment that the cluster waits
// for.
const (
	clusterType      protowire.Number = 2
	clusterEDS       protowire.Number = 3
	edsServiceName   protowire.Number = 2
	discoveryTypeEDS                  = 3
)

// loadAssignmentName returns the name of the load assignment of an encoded cluster. It is
// eds_cluster_config.service_name, or else the cluster's name. It is "" if the cluster does not use
// EDS.
func loadAssignmentName(name string, cluster []byte) string {
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

// Fields of envoy.config.endpoint.v3.ClusterLoadAssignment with the lease of its endpoints.
const (
	assignmentPolicy   protowire.Number = 4
	endpointStaleAfter protowire.Number = 4
)

// hasLease reports whether an encoded load assignment has policy.endpoint_stale_after: clients
// remove its endpoints unless it is sent again within that time.
func hasLease(assignment []byte) (has bool) {
	_ = eachField(assignment, func(num protowire.Number, typ protowire.Type, val, _ []byte) error {
		if num != assignmentPolicy || typ != protowire.BytesType {
			return nil
		}
		return eachField(val, func(num protowire.Number, typ protowire.Type, _, _ []byte) error {
			has = has || num == endpointStaleAfter && typ == protowire.BytesType
			return nil
		})
	})
	return has
}
