package upstream

import (
	"cmp"
	"slices"
	"time"

	"xdsrelay/internal/xds"
)

// Rejected is a type of an origin whose newest response the relay rejected, for one key or more
// (P18).
type Rejected struct {
	Type xds.TypeURL
	Keys int // for which the newest response was rejected
	// Key is the one of these keys that has been rejecting for longest. The fields below are about
	// that key.
	Key     string
	Version string    // of the newest response
	Err     error     // why it was rejected
	Since   time.Time // when the first response since the last accepted one was rejected
}

// rejectedOf is a type on a stream.
type rejectedOf struct {
	stream *originStream
	typ    xds.TypeURL
}

// rejection is the newest response of a type, which was rejected.
type rejection struct {
	version string
	err     error
	since   time.Time
}

// rejectedByType lists rejections by type, the oldest first.
func rejectedByType(all map[rejectedOf]rejection) (out []Rejected) {
	for of, r := range all {
		i := slices.IndexFunc(out, func(o Rejected) bool { return o.Type == of.typ })
		if i < 0 {
			i = len(out)
			out = append(out, Rejected{Type: of.typ, Since: r.since})
		}
		o := &out[i]
		o.Keys++
		if o.Key == "" || r.since.Before(o.Since) {
			o.Key, o.Version, o.Err, o.Since = of.stream.id, r.version, r.err, r.since
		}
	}
	slices.SortFunc(out, func(a, b Rejected) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Type, b.Type))
	})
	return out
}

// reject records that the newest response of a type was rejected. The rejection holds until a later
// response of the type is accepted, the key no longer wants the type, or it leaves the origin.
func (l *originStream) reject(r *xds.Response, fault error) {
	if l.probing.Load() != nil {
		return // the key uses another origin
	}
	if _, again := l.rejected[r.TypeURL]; !again {
		if l.rejected == nil {
			l.rejected = make(map[xds.TypeURL]struct{})
		}
		l.rejected[r.TypeURL] = struct{}{}
		l.at.metrics.Rejected(r.TypeURL).Add(1)
	}
	of := rejectedOf{l, r.TypeURL}
	l.at.mu.Lock()
	defer l.at.mu.Unlock()
	is, again := l.at.rejected[of]
	if !again {
		is.since = time.Now()
	}
	is.version, is.err = r.Version, fault
	if l.at.rejected == nil {
		l.at.rejected = make(map[rejectedOf]rejection)
	}
	l.at.rejected[of] = is
}

// forgetRejected ends the rejections of these types.
func (l *originStream) forgetRejected(which func(xds.TypeURL) bool) {
	for typ := range l.rejected {
		if !which(typ) {
			continue
		}
		delete(l.rejected, typ)
		l.at.metrics.Rejected(typ).Add(-1)
		l.at.mu.Lock()
		delete(l.at.rejected, rejectedOf{l, typ})
		l.at.mu.Unlock()
	}
}
