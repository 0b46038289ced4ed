package session

import "xdsrelay/internal/xds"

// forced is what the next response answers although nothing changed. Its maps are nil while
// they are empty.
type forced struct {
	names map[string]forceReason
	// retried are aliases that the client asked for again, with the number of the origin's
	// last answer before that: "not resolvable" (P18). They are pending until it answers
	// again.
	retried                map[string]uint64
	weight                 int  // see Session.NamesWeight
	initialResponsePending bool // the first request is not answered yet (P11)
}

// forceReason is why a name is answered although nothing changed. A greater one replaces a
// smaller one.
type forceReason uint8

const (
	// refreshed: its cluster changed (P37). Only what is there is sent, and it waits for
	// an ACK like any change (P19).
	refreshed forceReason = iota + 1
	// repeated: what the client was sent is not what it is to have (P15, P50). It waits for
	// an ACK as well.
	repeated
	// asked: it is newly subscribed, or given up beside the wildcard (P22–P24).
	asked
)

// add has a name answered by the next response.
func (f *forced) add(name string, why forceReason) {
	if f.names == nil {
		f.names = make(map[string]forceReason)
	}
	f.names[name] = max(why, f.names[name])
}

// remove has a name that was given up answered no more. sent is the resource that the client
// was sent of this name. If it asks for that by an alias as well, what was refused of it has
// to follow none the less (P26).
func (f *forced) remove(name string, sent *xds.Resource, names *xds.NameSet) {
	if f.names[name] == asked || sent == nil || !sent.AskedBy(names) {
		delete(f.names, name)
	}
}

// retry notes that an alias was asked for again after this answer.
func (f *forced) retry(name string, answer uint64) {
	if f.retried == nil {
		f.retried = make(map[string]uint64)
	}
	f.retried[name] = answer
}

func (f *forced) normalize() {
	if len(f.names) == 0 {
		f.names = nil
	}
	if len(f.retried) == 0 {
		f.retried = nil
	}
}
