package upstream

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"xdsrelay/internal/xds"
)

// An incremental request over max_request_bytes is split (P59): the names over
// several requests, each of which only changes names, as any later one does.
// Versions can stand in the first request of a type alone: of a name that held
// its place there, if it has one, and of no other, since some origins take what
// is listed for subscribed and some for nothing that was asked. Names that are
// held therefore go first.

// entry sizes, as fields on the wire.
func nameSize(num protowire.Number, name string) int {
	return protowire.SizeTag(num) + protowire.SizeBytes(len(name))
}

// versionSize is that of the value of an entry of initial_resource_versions.
func versionSize(name, version string) int {
	n := nameSize(1, name)
	if version != "" {
		n += nameSize(2, version)
	}
	return n
}

// initialSize is that of the entry itself.
func initialSize(name, version string) int {
	return protowire.SizeTag(deltaInitial) + protowire.SizeBytes(versionSize(name, version))
}

// appendVersion appends an entry of initial_resource_versions.
func appendVersion(b []byte, name, version string) []byte {
	b = protowire.AppendTag(b, deltaInitial, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(versionSize(name, version)))
	b = appendText(b, 1, name)
	if version != "" {
		b = appendText(b, 2, version)
	}
	return b
}

// brought is a resource that is held, with the version that its origin gave.
type brought struct {
	name, version string
	by            string // what it is asked for by
}

// opening is what a type's first request holds.
type opening struct {
	names    *xds.NameSet // nil: the wildcard
	versions []brought
	leftOut  int // versions
}

// open decides what of names and versions has room in a type's first request:
// all of it, if it can be. There is always a name: without any it would ask for
// the wildcard (P21).
func open(want asked, held []brought, room int) opening {
	if want.wildcard {
		o := opening{}
		o.bring(held, room-nameSize(deltaSubscribe, "*"), func(brought) int { return 0 }, func(brought) {})
		return o
	}
	total := 0
	for n := range want.names.All() {
		total += nameSize(deltaSubscribe, n)
	}
	for _, h := range held {
		total += initialSize(h.name, h.version)
	}
	if total <= room {
		return opening{names: want.names, versions: held}
	}
	o := opening{}
	in := make(map[string]bool, len(held)) // the names that have their place
	room = o.bring(held, room, func(h brought) int {
		if in[h.by] {
			return 0
		}
		return nameSize(deltaSubscribe, h.by)
	}, func(h brought) { in[h.by] = true })
	var later []string
	for n := range want.names.All() {
		if in[n] {
			continue
		}
		if room -= nameSize(deltaSubscribe, n); room < 0 {
			later = append(later, n)
		}
	}
	if len(later) == want.names.Len() {
		later = later[1:]
	}
	o.names = want.names.Remove(later...)
	return o
}

// bring takes what has room, each with what besides it takes, tells of each that
// is taken, and returns the room that is left.
func (o *opening) bring(held []brought, room int, besides func(brought) int, taken func(brought)) int {
	for _, h := range held {
		size := initialSize(h.name, h.version) + besides(h)
		if size > room {
			o.leftOut++
			continue
		}
		room -= size
		taken(h)
		o.versions = append(o.versions, h)
	}
	return room
}

// fit returns how much of the names to add and to take away has room in one
// request: what is new first, and always a name.
func fit(add, drop []string, room int) (now, gone []string) {
	upTo := func(names []string, num protowire.Number, must bool) []string {
		n := slices.IndexFunc(names, func(name string) bool {
			room -= nameSize(num, name)
			return room < 0
		})
		switch {
		case n < 0:
			return names
		case n == 0 && must:
			return names[:1]
		}
		return names[:n]
	}
	now = upTo(add, deltaSubscribe, true)
	if len(now) < len(add) {
		return now, nil
	}
	return now, upTo(drop, deltaUnsubscribe, len(now) == 0)
}
