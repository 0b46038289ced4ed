package xds

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"slices"
	"strings"
	"sync/atomic"
)

// content is what of a resource is the same wherever it is held: a thousand keys
// with equal resources hold it once, and hash it once. It is immutable.
type content struct {
	// Name by which clients subscribe.
	Name string
	// Aliases under which it can be subscribed as well, as written, sorted.
	Aliases []string
	// Version of the content: type URL, body, aliases; not TTL (P61).
	Version Version
	// Uncacheable: held only for those who are there, and while the stream that
	// brought it lives (P63).
	Uncacheable bool
	// Follows names the resource of Type.Follower that follows this one (P37);
	// "" for none.
	Follows string

	// body is field 2 of both DiscoveryResponse and Resource on the wire: tag,
	// length and Any. extra are the other fields of Resource as they came, but
	// for name, version, body and TTL.
	body, extra []byte
	// member is what this resource adds to its set's version.
	member Version
	// more is that of the resource as it came.
	more *more
	// newest is the last resource that was made of it, without a TTL: keys of one
	// origin hold that together, with its version.
	newest atomic.Pointer[Resource]
}

// resource returns the resource of this content as r brings it.
func (c *content) resource(r *Raw) *Resource {
	if have := c.newest.Load(); have != nil && !r.timed && have.OriginVersion == r.OriginVersion {
		return have
	}
	version := strings.Clone(r.OriginVersion)
	made := &Resource{content: c, OriginVersion: version, Given: version, timing: r.timing(), more: c.more}
	if !r.timed {
		c.newest.Store(made)
	}
	return made
}

// contents are those of all keys, in sets of their own, so that readers of many
// origins seldom meet. A body names its type, so types need none.
var contents [64]WeakSet[content]

var contentSeed = maphash.MakeSeed()

// content returns the one content of r, which it makes and copies only if nobody
// holds it.
func (r *Raw) content(t Type) *content {
	h := r.hash()
	set := &contents[h%uint64(len(contents))]
	if c := set.Find(h, r.equals); c != nil {
		return c
	}
	return set.Keep(h, r.copyContent(t), r.equals)
}

// equals compares bytes: resources of different tenants must never be taken for
// each other. Aliases are in extra.
func (r *Raw) equals(c *content) bool {
	return c.Name == r.Name && bytes.Equal(c.body, r.body) && bytes.Equal(c.extra, r.extra)
}

// hash is that of all that equals compares.
func (r *Raw) hash() uint64 {
	var h maphash.Hash
	h.SetSeed(contentSeed)
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], uint64(len(r.Name)))
	_, _ = h.Write(n[:]) // into memory
	_, _ = h.WriteString(r.Name)
	_, _ = h.Write(r.body)
	_, _ = h.Write(r.extra)
	return h.Sum64()
}

func (r *Raw) copyContent(t Type) *content {
	url, value, _ := splitAny(anyOf(r.body))
	whole := append(bytes.Clone(r.body), r.extra...)
	c := &content{
		Name:        strings.Clone(r.Name),
		body:        whole[:len(r.body):len(r.body)],
		extra:       whole[len(r.body):],
		Uncacheable: r.uncacheable,
	}
	for _, a := range r.aliases {
		c.Aliases = append(c.Aliases, strings.Clone(a))
	}
	slices.Sort(c.Aliases)
	c.more = takeMore(c.Name, c.Aliases)
	c.Version = contentVersion(url, value, c.Aliases)
	c.member = memberVersion(c.Name, c.Version)
	if t.Follower != "" {
		c.Follows = edsName(c.Name, value)
	}
	return c
}

// hollow is a resource without a body: a mark in the place of one.
func hollow(name string) *Resource { return &Resource{content: &content{Name: name}} }
