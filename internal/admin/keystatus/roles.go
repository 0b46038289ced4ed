package keystatus

import (
	"xdsrelay/internal/orchestrator"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// Roles counts the keys in use by what this relay is for them. Without a cluster all are 0.
func (r *Reader) Roles() map[telemetry.KeyRole]int {
	counts := make(map[telemetry.KeyRole]int)
	if r.owner == nil {
		return counts
	}
	for _, g := range r.registry.Groups() {
		s := g.Status()
		role, _ := r.role(&s)
		counts[role]++
	}
	return counts
}

// Owner returns the member of the cluster that owns a key, in use or not; "": the relay is in no cluster.
func (r *Reader) Owner(key xds.Key) string {
	if r.owner == nil {
		return ""
	}
	name, _ := r.owner(key)
	return name
}

// role returns what this relay is for a key, and the member that owns the key; "": no member owns keys.
func (r *Reader) role(of *orchestrator.Status) (role telemetry.KeyRole, owner string) {
	owner, self := r.owner(of.Key)
	switch up := &of.Upstreams[0]; {
	case self:
		return telemetry.KeyOwner, owner
	case owner == "", up.Origin != "" && !up.Relayed: // it has chosen a source
		return telemetry.KeyDirect, owner
	}
	return telemetry.KeyFollower, owner
}
