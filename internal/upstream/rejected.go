package upstream

import (
	"cmp"
	"slices"
	"time"

	"xdsrelay/internal/telemetry/redact"
	"xdsrelay/internal/xds"
)

// RejectedType is a type whose newest response from an origin the relay rejected, for one key or more
// (P18). Key is the one that has been rejecting for longest, and the fields below are about it.
type RejectedType struct {
	Type    string    `json:"type"` // the short name, or the URL
	Keys    int       `json:"keys"` // for which the newest response was rejected
	Key     string    `json:"key"`
	Version string    `json:"version,omitempty"` // of the newest response
	Error   string    `json:"error"`             // why it was rejected, redacted
	Since   time.Time `json:"since"`             // when the first response since the last accepted one was rejected
}

// maxRejected bounds the rejected types that are shown of an origin.
const maxRejected = 20

type rejection struct {
	version string
	err     string // redacted
	since   time.Time
}

// rejections has the types of each stream whose newest response was rejected. It outlives attempts,
// because the origin usually sends the same response on its next stream.
type rejections map[*stream]map[xds.TypeURL]rejection

// byType lists rejections by type, the oldest first.
func (all rejections) byType() (out []RejectedType) {
	for stream, types := range all {
		for url, r := range types {
			typ := cmp.Or(xds.TypeOf(url).Short, string(url))
			i := slices.IndexFunc(out, func(o RejectedType) bool { return o.Type == typ })
			if i < 0 {
				i = len(out)
				out = append(out, RejectedType{Type: typ, Since: r.since})
			}
			o := &out[i]
			o.Keys++
			if o.Key == "" || r.since.Before(o.Since) {
				o.Key, o.Version, o.Error, o.Since = stream.id, r.version, r.err, r.since
			}
		}
	}
	slices.SortFunc(out, func(a, b RejectedType) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Type, b.Type))
	})
	return out[:min(len(out), maxRejected)]
}

// reject records that the newest response of a type was rejected. The rejection holds until a later
// response of the type is accepted, the key no longer wants the type, or it leaves the origin.
func (s *stream) reject(r *xds.Response, fault error) {
	if s.probing.Load() != nil {
		return // the key uses another origin
	}
	text := redact.Text(fault.Error())
	s.at.mu.Lock()
	types := s.at.rejected[s]
	if types == nil {
		types = make(map[xds.TypeURL]rejection)
		s.at.rejected[s] = types
	}
	newest, again := types[r.TypeURL]
	if !again {
		newest.since = time.Now()
	}
	newest.version, newest.err = r.Version, text
	types[r.TypeURL] = newest
	s.at.mu.Unlock()
	if !again {
		s.at.metrics.Rejected(r.TypeURL).Add(1)
	}
}

// forgetRejected ends the rejections of these types.
func (s *stream) forgetRejected(which func(xds.TypeURL) bool) {
	var forgotten []xds.TypeURL
	s.at.mu.Lock()
	for typ := range s.at.rejected[s] {
		if which(typ) {
			forgotten = append(forgotten, typ)
			delete(s.at.rejected[s], typ)
		}
	}
	if len(s.at.rejected[s]) == 0 {
		delete(s.at.rejected, s)
	}
	s.at.mu.Unlock()
	for _, typ := range forgotten {
		s.at.metrics.Rejected(typ).Add(-1)
	}
}
