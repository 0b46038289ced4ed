package model

import (
	"slices"
	"time"

	"xdsrelay/internal/xds"
)

// An event happens to the cluster, and is over when its function returns. Meanwhile the origin changes
// its content.

// killed kills a relay. One of the same name starts later, on another host.
func (w *clusterFixture) killed(r *relay, away time.Duration) {
	w.kill(r)
	w.busy(away)
	w.start(r.name, r.compat)
}

// restarted kills a relay and starts it at once, on the same host.
func (w *clusterFixture) restarted(r *relay) {
	w.kill(r)
	w.startOn(r.host, r.name, r.compat)
}

// drained drains a relay. One of the same name starts then.
func (w *clusterFixture) drained(r *relay) {
	w.drain(r)
	w.busy(time.Second)
	w.start(r.name, r.compat)
}

// cutOff cuts connections, gossip, or both, from one relay to others, and restores them. both cuts the
// other direction too.
func (w *clusterFixture) cutOff(r *relay, others []*relay, connections, gossip, both bool, length time.Duration) {
	set := func(up bool) {
		for _, o := range others {
			for _, l := range [][2]string{{r.host, o.host}, {o.host, r.host}} {
				if l[0] == o.host && !both {
					continue
				}
				if connections {
					w.n.link(l[0], l[1], up)
				}
				if gossip {
					w.n.linkGossip(l[0], l[1], up)
				}
			}
		}
	}
	set(false)
	w.busy(length)
	set(true)
}

// withoutOrigin cuts relays off from the origin, in both directions.
func (w *clusterFixture) withoutOrigin(relays []*relay, length time.Duration) {
	set := func(up bool) {
		for _, r := range relays {
			w.n.link(r.host, originHost, up)
			w.n.link(originHost, r.host, up)
		}
	}
	set(false)
	w.busy(length)
	set(true)
}

// refused makes the origin end each stream at once.
func (w *clusterFixture) refused(length time.Duration) {
	w.o.leave(true)
	w.busy(length)
	w.o.leave(false)
}

// named returns the running relay of a name.
func (w *clusterFixture) named(name string) *relay {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.IndexFunc(w.relays, func(r *relay) bool { return r.name == name })
	if i < 0 {
		return nil
	}
	return w.relays[i]
}

// running returns the running relays.
func (w *clusterFixture) running() []*relay {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.relays)
}

// owner returns the relay that owns a key, as the first of a compat sees it.
func (w *clusterFixture) owner(key, compat string) *relay {
	for _, r := range w.running() {
		if r.compat != compat {
			continue
		}
		if m, ok := r.table.Owner(xds.NewKey(key)); ok {
			return w.named(m.Name)
		}
	}
	return nil
}

// others returns the running relays but one.
func (w *clusterFixture) others(r *relay) []*relay {
	return slices.DeleteFunc(w.running(), func(o *relay) bool { return o == r })
}

// busy lets time pass. The origin changes something about each second.
func (w *clusterFixture) busy(length time.Duration) {
	for until := time.Now().Add(length); ; {
		w.change()
		left := time.Until(until)
		if left <= 0 {
			return
		}
		sleepInBubble(min(left, time.Duration(w.pick(int(2*time.Second)))))
	}
}

// change makes a change of the origin.
func (w *clusterFixture) change() {
	typ := types[w.pick(len(types))]
	if w.pick(3) == 0 {
		w.remove(typ, fleeting[w.pick(len(fleeting))])
	} else {
		w.put(typ, names[w.pick(len(names))])
	}
}
