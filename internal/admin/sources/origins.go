package sources

import (
	"cmp"
	"fmt"
	"time"

	"xdsrelay/internal/telemetry/redact"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
)

// Origin is an item of /origins.
type Origin struct {
	Name      string     `json:"name"`
	Address   string     `json:"address"`
	Away      bool       `json:"away"`
	AwaySince *time.Time `json:"away_since,omitempty"`
	// Reached is when the relay last connected to it, or got the first response of a stream; absent:
	// never.
	Reached     *time.Time `json:"reached,omitempty"`
	Streams     int        `json:"streams"`
	Connections int        `json:"connections"`
	Reconnects  uint64     `json:"reconnects"`
	LastError   string     `json:"last_error,omitempty"`
	LastErrorAt *time.Time `json:"last_error_at,omitempty"`
	Silent      int        `json:"silent_streams"`
	SilentSince *time.Time `json:"silent_since,omitempty"`
	// Faults of the origin's files.
	Faults []string `json:"faults,omitempty"`
	// Rejected has the types whose newest response the relay rejected, at most maxRejected.
	Rejected []RejectedType `json:"rejected,omitempty"`

	Place int `json:"-"` // in the order of preference
}

// RejectedType is a type whose newest response from an origin the relay rejected. Keys is for how many
// keys; the other fields are about the one that has been rejecting for longest.
type RejectedType struct {
	Type    string    `json:"type"`
	Keys    int       `json:"keys"`
	Key     string    `json:"key"`
	Version string    `json:"version,omitempty"`
	Error   string    `json:"error"`
	Since   time.Time `json:"since"`
}

// maxRejected bounds the rejected types that are shown of an origin.
const maxRejected = 20

// Origins returns the items of /origins, in order of preference.
func Origins(all []upstream.OriginStatus) []Origin {
	out := []Origin{}
	for i, o := range all {
		out = append(out, originOf(o))
		out[i].Place = i
	}
	return out
}

func originOf(o upstream.OriginStatus) Origin {
	out := Origin{Name: o.Name, Address: o.Address, Away: o.Away, Streams: o.Streams, Connections: o.Connections, Reconnects: o.Reconnects, Silent: o.Silent}
	if !o.SilentSince.IsZero() {
		out.SilentSince = &o.SilentSince
	}
	if o.Away {
		out.AwaySince = &o.AwaySince
	}
	if !o.Reached.IsZero() {
		out.Reached = &o.Reached
	}
	if o.LastError != nil {
		out.LastError, out.LastErrorAt = redact.Text(o.LastError.Error()), &o.LastErrorAt
	}
	for _, f := range o.Faults {
		out.Faults = append(out.Faults, redact.Text(fmt.Sprintf("%s: %v", f.File, f.Err)))
	}
	for _, r := range o.Rejected[:min(len(o.Rejected), maxRejected)] {
		out.Rejected = append(out.Rejected, RejectedType{Type: cmp.Or(xds.TypeOf(r.Type).Short, string(r.Type)), Keys: r.Keys, Key: r.Key,
			Version: r.Version, Error: redact.Text(r.Err.Error()), Since: r.Since})
	}
	return out
}
