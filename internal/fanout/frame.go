package fanout

import (
	"hash/maphash"
	"slices"
	"time"

	"xdsrelay/internal/fanout/session"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Frame is an encoded response without nonces. All streams that need the same response share it, and
// it is never pooled. It is immutable.
type Frame struct {
	*session.Manifest
	// bodies are its messages: one, or the parts of a large delta response (P38); nil: there is nothing
	// to send.
	bodies [][]byte

	// What it is made of, besides the manifest.
	typ        xds.TypeURL
	identifier string // control_plane.identifier
	form       xds.ResourceFormat
	version    string // version_info or system_version_info
	resources  []*xds.Resource
	heartbeats []*xds.Resource
	removed    []string
	errors     []*xds.ResourceError
	ttls       []time.Duration // what is left of the TTLs

	// first is the frame whose bytes this one shares; nil: none. It keeps that one alive, so that
	// others find it.
	first *Frame
}

// emptyFrame is the frame of a plan with nothing to send.
var emptyFrame = &Frame{Manifest: new(session.Manifest)}

// Empty reports whether there is nothing to send.
func (f *Frame) Empty() bool { return f.bodies == nil }

// size returns the length of all messages in bytes.
func (f *Frame) size() (n int) {
	for _, b := range f.bodies {
		n += len(b)
	}
	return n
}

// maxPart is the size of the parts into which a delta response is cut, in bytes. Clients of gRPC
// receive 4 MiB by default (P38).
const maxPart = 3 << 20

// newFrame encodes a response, whose body is cut into parts. ttls is what is left of the TTLs in it.
func newFrame(body *xds.ResponseBody, parts []*xds.ResponseBody, c *session.Content, to *snapshot.Snapshot, ttls []time.Duration) *Frame {
	bodies, m := make([][]byte, len(parts)), c.Manifest(to)
	for i, p := range parts {
		bodies[i] = p.Encode()
		snapshot.CountDerived(int64(len(bodies[i])))
		if len(parts) > 1 {
			c := session.Content{Changed: p.Resources, Heartbeats: p.Heartbeats, Removed: p.Removed, Errors: p.Errors}
			m.Parts = append(m.Parts, c.Manifest(to))
		}
	}
	return &Frame{Manifest: m, bodies: bodies, typ: body.Type, identifier: body.Identifier, form: body.ResourceFormat, version: body.Version,
		resources: c.Changed, heartbeats: c.Heartbeats, removed: c.Removed, errors: c.Errors, ttls: ttls}
}

// frames finds the frames of all snapshots, so that keys with equal resources send the same bytes.
// The caches of snapshots and the messages in flight own a frame; the sets here do not keep it
// alive. The sets have an entry for each frame, and for those dropped since the last garbage
// collection. There are many sets so that workers seldom wait for each other.
//
// The frames of subscriptions that one client has alone (Subscription.Unshared) are here as well:
// with a key for each client, all are of that kind.
var frames [64]xds.WeakSet[Frame]

// remainingTTLs are the remaining times of the TTLs in the content; nil: none are sent.
func remainingTTLs(body *xds.ResponseBody, c *session.Content) (out []time.Duration) {
	if !body.WithTTL {
		return nil
	}
	for _, rs := range [...][]*xds.Resource{c.Changed, c.Heartbeats} {
		for _, r := range rs {
			if r.TTL() > 0 {
				out = append(out, r.RemainingTTL(body.Now))
			}
		}
	}
	return out
}

// equals reports whether f is this response, byte for byte, and whether sessions keep the same of
// it, except for the time at which it was received. f may be of another key. The hash by which f
// was found proves nothing.
func (f *Frame) equals(body *xds.ResponseBody, c *session.Content, to *snapshot.Snapshot, ttls []time.Duration) bool {
	return f.typ == body.Type &&
		f.identifier == body.Identifier &&
		f.Version == to.Version &&
		f.HeartbeatVersion == c.HeartbeatVersion &&
		f.Renewed == c.Renewed &&
		f.sameContent(body, c, ttls)
}

// sameContent reports whether f has this content, if it is a frame of the same snapshot.
func (f *Frame) sameContent(body *xds.ResponseBody, c *session.Content, ttls []time.Duration) bool {
	return f.form == body.ResourceFormat && f.version == body.Version && f.OnlyRenewals == c.OnlyRenewals &&
		slices.Equal(f.resources, c.Changed) && slices.Equal(f.heartbeats, c.Heartbeats) && slices.Equal(f.removed, c.Removed) &&
		slices.Equal(f.errors, c.Errors) && slices.Equal(f.ttls, ttls) && slices.Equal(f.Follows, c.Follows) &&
		slices.Equal(f.LaterErrors, c.LaterErrors)
}

var contentSeed = maphash.MakeSeed()

// hashContent hashes the content. It hashes resources by identity, since equal ones are shared.
func hashContent(body *xds.ResponseBody, c *session.Content, ttls []time.Duration) uint64 {
	var h maphash.Hash
	h.SetSeed(contentSeed)
	maphash.WriteComparable(&h, body.ResourceFormat)
	_, _ = h.WriteString(body.Version)
	for _, rs := range [...][]*xds.Resource{c.Changed, c.Heartbeats} {
		maphash.WriteComparable(&h, len(rs))
		for _, r := range rs {
			maphash.WriteComparable(&h, r)
		}
	}
	for _, n := range c.Removed {
		_, _ = h.WriteString(n)
		_ = h.WriteByte(0)
	}
	for _, e := range c.Errors {
		maphash.WriteComparable(&h, e)
	}
	for _, d := range ttls {
		maphash.WriteComparable(&h, d)
	}
	return h.Sum64()
}

// receivedAt returns the frame for a snapshot whose newest part was received then. It shares all
// that is large.
func (f *Frame) receivedAt(received time.Time) *Frame {
	if f.Received.Equal(received) {
		return f
	}
	own, m := *f, *f.Manifest
	m.Received, m.Parts = received, nil
	for _, p := range f.Parts {
		part := *p
		part.Received = received
		m.Parts = append(m.Parts, &part)
	}
	own.Manifest, own.first = &m, f
	return &own
}
