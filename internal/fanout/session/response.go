package session

import (
	"slices"
	"time"

	"xdsrelay/internal/xds"
)

// Manifest is what a response spoke of. Sessions that have not answered yet keep
// it, and not the body.
type Manifest struct {
	names []string // in resources, removed and errors, sorted
	// versions of them, in the same order; that of what was removed is zero.
	versions []xds.Version

	Follows  []string  // resources of the type's follower that follow (P37)
	Received time.Time // when the origin sent what is newest in the snapshot
	Version  string    // of the snapshot: version_info or system_version_info
	Took     string    // version_info of heartbeats alone: that which the client took last (P62)
	Later    []string  // whose error follows, since their resource is in the response (P39)
	Quiet    bool      // nothing in it changed: it renews TTLs (P62)
	Renewed  int       // TTLs that it renews
}

// says returns the version in which the response spoke of name, zero for its
// removal, and whether it did.
func (m *Manifest) says(name string) (xds.Version, bool) {
	i, spoke := slices.BinarySearch(m.names, name)
	if !spoke {
		return xds.Version{}, false
	}
	return m.versions[i], true
}

// FrameKey names a regular response to one snapshot: sessions in step alike
// get the same. The snapshot that the client comes from is named by its
// generation and not pointed to, so that a frame keeps no old snapshot alive.
type FrameKey struct {
	form         xds.Form
	full, force  bool
	anew         bool // everything in it is new to the client
	sub, by      *xds.Subscription
	lineage, gen uint64
	beat         beatKey
}

// key names the difference between what the client was sent and what it is to
// see.
func (s *Session) key(cur *xds.Snapshot, now time.Time) FrameKey {
	k := FrameKey{form: s.form, full: s.full(), sub: s.sub.effective, by: s.sentBy(), beat: s.beatKey(cur, now)}
	if s.delivered.snapshot != nil {
		k.lineage, k.gen = s.delivered.snapshot.Lineage, s.delivered.snapshot.Gen
	}
	return k
}

// followers are the resources that follow these (P37), sorted.
func followers(rs []*xds.Resource) []string {
	var out []string
	for _, r := range rs {
		if r.Follows != "" {
			out = append(out, r.Follows)
		}
	}
	sortUnique(&out)
	return out
}

func sortUnique(names *[]string) {
	slices.Sort(*names)
	*names = slices.Compact(*names)
}
