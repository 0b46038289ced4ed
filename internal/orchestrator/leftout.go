package orchestrator

import (
	"slices"
	"time"

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
	v.dropLed(unled)
	for name, led := range unled {
		g.linger.endLinger(follower, partName{name: name})
		follower.leaveOut(name, led, time.Now())
	}
	for _, r := range u.Changed {
		if _, out := follower.removals.leftOut[r.Follows]; out {
			g.takeIn(follower, r.Follows)
		}
	}
	return changed, first
}

// leadBy is how the resource that led to a name was subscribed: by the wildcard, or by names.
type leadBy struct {
	wildcard bool
	names    []string
}

// unled returns the names that a resource leads to before u is applied and not afterwards.
func (v *View) unled(u *snapshot.Update) map[string]leadBy {
	part := v.part(u.Wildcard)
	names := make(map[string]leadBy)
	add := func(name, follows string) {
		if was := part.Held(name); was != nil && was.Follows != "" && was.Follows != follows {
			by := leadBy{wildcard: u.Wildcard}
			if !u.Wildcard {
				by.names, _ = v.requestedAs(name)
			}
			names[was.Follows] = by
		}
	}
	for _, name := range u.Removed {
		add(name, "")
	}
	for _, r := range u.Changed {
		add(r.Name, r.Follows)
	}
	return names
}

// dropLed removes from names those that another resource leads to. Resources whose deletion waits
// do not count. If there are names, the cost follows the number of resources. So does the cost of
// the SotW response that removed a resource.
func (v *View) dropLed(names map[string]leadBy) {
	for _, wildcard := range []bool{true, false} {
		if len(names) == 0 {
			return
		}
		for r := range v.part(wildcard).Resources {
			if v.removals.of(partName{wildcard, r.Name}) == nil {
				delete(names, r.Follows)
			}
		}
	}
}

// leaveOut removes a name from the subscription. What is held of it stays for the delay of P36.
func (v *View) leaveOut(name string, led leadBy, now time.Time) {
	r := &v.removals
	if _, out := r.leftOut[name]; out {
		return
	}
	if r.leftOut == nil {
		r.leftOut = make(map[string]leadBy)
	}
	r.leftOut[name] = led
	r.end(partName{name: name})
	r.wait(partName{name: name}, now).leftOut = true
	v.names = v.names.Remove(name)
}

// forgetLeftOut forgets what is held of a name that is left out. If no member wants the name, it is
// no longer left out.
func (v *View) forgetLeftOut(name string) {
	v.builder.Forget(v.names, name)
	if !v.index.HasName(name) {
		delete(v.removals.leftOut, name)
	}
}

// takeIn ends leaveOut. It subscribes to the name if a member wants it, and forgets it otherwise.
func (g *Group) takeIn(v *View, name string) {
	delete(v.removals.leftOut, name)
	v.removals.end(partName{name: name})
	if v.index.HasName(name) {
		v.names = v.names.Add(name)
	} else if v.forget([]string{name}, false, g.gen+1) {
		g.publishSoon(time.Now())
	}
}

// takeInUnled takes in the names whose leading resource is no longer subscribed. The origin would
// not report its return.
func (g *Group) takeInUnled() {
	for _, v := range g.views {
		if len(v.removals.leftOut) == 0 {
			continue
		}
		i := slices.IndexFunc(g.views, func(o *View) bool { return o.typ.Follower == v.typ.URL })
		for name, led := range v.removals.leftOut {
			if i < 0 || led.wildcard && !g.views[i].wildcard || !led.wildcard && !slices.ContainsFunc(led.names, g.views[i].names.Has) {
				g.takeIn(v, name)
			}
		}
	}
}
