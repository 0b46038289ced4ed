package orchestrator

import (
	"time"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// With a SotW origin, the name of a ClusterLoadAssignment is left out of the subscription as soon
// as the origin removed the last cluster that leads to it, even if clients still want the name
// (P52). The reason is that some origins answer no request with a name that they do not have
// (java-control-plane in ADS mode), so the name would hold up all others. Clients keep what is held
// until the removal of the cluster takes effect (P36). The name is subscribed again once the origin
// sends a cluster that leads to it.
//
// A request to a delta origin has only the names that change, so nothing is left out there.

// applyToView applies an update to its view. With a SotW origin it also leaves out names of the
// type that follows (P37), or takes them in again.
func (g *Group) applyToView(v *View, from *upstreamHandle, u snapshot.Update) (changed, first bool) {
	follower := find(g.views, v.typ.Follower)
	if !g.opts.SotWOrigins || follower == nil || from != v.streamOf(u.Wildcard) {
		return v.apply(from, u, g.removalDelay(), g.gen+1)
	}
	unled := v.unled(&u)
	changed, first = v.apply(from, u, g.removalDelay(), g.gen+1)
	for name := range v.withoutLed(unled) {
		g.linger.endLinger(follower, partName{name: name})
		follower.leaveOut(name, time.Now())
	}
	for _, r := range u.Changed {
		if follower.removals.leftOut[r.Follows] {
			follower.takeIn(r.Follows)
		}
	}
	return changed, first
}

// unled returns the names that a resource leads to before u is applied and not afterwards.
func (v *View) unled(u *snapshot.Update) map[string]struct{} {
	part := v.part(u.Wildcard)
	names := make(map[string]struct{})
	add := func(was *xds.Resource, follows string) {
		if was != nil && was.Follows != "" && was.Follows != follows {
			names[was.Follows] = struct{}{}
		}
	}
	for _, name := range u.Removed {
		add(part.Held(name), "")
	}
	for _, r := range u.Changed {
		add(part.Held(r.Name), r.Follows)
	}
	return names
}

// withoutLed removes from names those that another resource leads to, and returns names. Resources
// whose deletion waits do not count. If there are names, the cost follows the number of resources.
// So does the cost of the SotW response that removed a resource.
func (v *View) withoutLed(names map[string]struct{}) map[string]struct{} {
	for _, wildcard := range []bool{true, false} {
		if len(names) == 0 {
			break
		}
		for r := range v.part(wildcard).Resources {
			if _, waits := v.removals.waiting[partName{wildcard, r.Name}]; !waits {
				delete(names, r.Follows)
			}
		}
	}
	return names
}

// leaveOut removes a name from the subscription. What is held of it stays for the delay of P36.
func (v *View) leaveOut(name string, now time.Time) {
	r := &v.removals
	if r.leftOut[name] {
		return
	}
	if r.leftOut == nil {
		r.leftOut = make(map[string]bool)
	}
	if r.waiting == nil {
		r.waiting = make(map[partName]waiting)
	}
	r.leftOut[name] = true
	r.waiting[partName{name: name}] = waiting{since: now, leftOut: true}
	v.names = v.names.Remove(name)
}

// takeIn ends leaveOut. The group then subscribes to the name if a member wants it, and forgets it
// otherwise.
func (v *View) takeIn(name string) {
	delete(v.removals.leftOut, name)
	delete(v.removals.waiting, partName{name: name})
	v.touched = append(v.touched, name)
}

// forgetLeftOut forgets what is held of a name that is left out. If no member wants the name, it is
// no longer left out.
func (v *View) forgetLeftOut(name string) {
	v.builder.Forget(v.names, name)
	if !v.index.HasName(name) {
		delete(v.removals.leftOut, name)
	}
}
