package xds

import "slices"

// State is a group's snapshots of all types at one generation. It is
// immutable; a group points to the State that its members see.
type State struct {
	// Group that made it, unique in the process, and its generation there.
	Group, Gen uint64

	snapshots []*Snapshot
}

// NewState makes the State of these snapshots, one a type.
func NewState(group, gen uint64, snapshots []*Snapshot) *State {
	return &State{Group: group, Gen: gen, snapshots: slices.Clone(snapshots)}
}

// Snapshot returns that of typ; nil if nothing is known of the type.
func (s *State) Snapshot(typ TypeURL) *Snapshot {
	if s == nil {
		return nil
	}
	for _, snap := range s.snapshots {
		if snap.Type.URL == typ {
			return snap
		}
	}
	return nil
}
