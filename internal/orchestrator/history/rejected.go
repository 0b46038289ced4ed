package history

import (
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// The bounds on the resources of NACKs. A key keeps those of maxRejected rows. A row keeps at most
// MaxRejectedNames resources and maxRejectedBytes, their names included. All keys together keep
// allRejectedBytes. A resource that is also in a snapshot counts in full.
const (
	MaxRejectedNames = 50
	maxRejected      = 16
	maxRejectedBytes = 2 << 20
	allRejectedBytes = 64 << 20

	rejectedNameCost = 128 // bytes of a Difference, without its resources
)

// Rejected has the resources that clients rejected, beside those that the first of these clients
// had. It is immutable.
type Rejected struct {
	// Differences have no resources that must not be cached (P63), and none that were too large.
	Differences []snapshot.Difference
	// More counts further resources.
	More int
	// Unknown: the relay had too little left of the replaced resources to compare them.
	Unknown bool

	bytes int64
}

// NewRejected makes a Rejected, within its bounds, of the results of snapshot.Past.Differences.
func NewRejected(all []snapshot.Difference, more int, known bool) *Rejected {
	r := &Rejected{More: more, Unknown: !known, Differences: all[:min(len(all), MaxRejectedNames)]}
	r.More += len(all) - len(r.Differences)
	for i := range r.Differences {
		r.bytes += rejectedNameCost + int64(len(r.Differences[i].Name)) // the names always stay
	}
	for i := range r.Differences {
		d := &r.Differences[i]
		cost := sizeOf(d.Offered) + sizeOf(d.Has)
		if uncacheable(d.Offered) || uncacheable(d.Has) || r.bytes+cost > maxRejectedBytes {
			d.OfferedGone, d.HasGone = d.OfferedGone || d.Offered != nil, d.HasGone || d.Has != nil
			d.Offered, d.Has, cost = nil, nil, 0
		}
		r.bytes += cost
	}
	return r
}

func sizeOf(r *xds.Resource) int64 {
	if r == nil {
		return 0
	}
	return r.Size()
}

func uncacheable(r *xds.Resource) bool { return r.HasBody() && r.Uncacheable }

// keepRejected keeps the resources of a row, unless the row is gone or has some.
func (k *Nacks) keepRejected(r *nackRow, what *Rejected) {
	k.mu.Lock()
	if !k.all.rows.has(r) || r.Rejected != nil {
		k.mu.Unlock()
		return
	}
	r.Rejected = what
	out := k.all.rejected.use(r, what.bytes)
	kept := 0
	for i := len(k.rows) - 1; i >= 0; i-- {
		if row := k.rows[i]; row.Rejected != nil {
			if kept++; kept > maxRejected {
				k.all.rejected.remove(row)
				row.Rejected = nil
			}
		}
	}
	k.mu.Unlock()
	for _, o := range out {
		o.nacks.dropRejected(o)
	}
}

// dropRejected drops the resources of a row that a bound over all keys removed.
func (k *Nacks) dropRejected(r *nackRow) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r.Rejected = nil
}
