package audience

import "time"

// UserAgents counts the subscribers of a group by the name of their user agent, such as "envoy".
// Subscribers of one key should be programs of one kind, because the origin sends all of them the
// same resources (P58). A subscriber without a name counts as no kind. The group's goroutine owns
// it.
type UserAgents struct {
	subscribers map[string]int   // by name; only names that a subscriber or the representative has
	named       int              // subscribers with a name
	Mixed       *MixedUserAgents // nil: the names do not differ
}

// MixedUserAgents describes a key whose subscribers differ in the name of their user agent. It is
// immutable.
type MixedUserAgents struct {
	// Names has two of the names. If the representative is a client's node, the first one is its.
	Names [2]string
	Since time.Time
}

// Count adds n subscribers with a name. It reports whether the subscribers begin to differ, or no
// longer do.
func (u *UserAgents) Count(name string, n int, now time.Time) (changed bool) {
	if name == "" {
		return false
	}
	if u.subscribers == nil {
		u.subscribers = make(map[string]int)
	}
	u.named += n
	if u.subscribers[name] += n; u.subscribers[name] == 0 {
		delete(u.subscribers, name)
	}
	was := u.Mixed
	switch {
	case len(u.subscribers) < 2:
		u.Mixed = nil
	case was == nil:
		u.Mixed = &MixedUserAgents{Names: [2]string{u.otherThan(name), name}, Since: now}
	case u.subscribers[was.Names[0]] == 0:
		u.Mixed = &MixedUserAgents{Names: [2]string{was.Names[1], u.otherThan(was.Names[1])}, Since: was.Since}
	case u.subscribers[was.Names[1]] == 0:
		u.Mixed = &MixedUserAgents{Names: [2]string{was.Names[0], u.otherThan(was.Names[0])}, Since: was.Since}
	}
	return (was == nil) != (u.Mixed == nil)
}

// otherThan returns one of the names that is not name; "" if there is none.
func (u *UserAgents) otherThan(name string) string {
	for other := range u.subscribers {
		if other != name {
			return other
		}
	}
	return ""
}

// Others counts the subscribers with another name than the first of Mixed.
func (u *UserAgents) Others() int {
	if u.Mixed == nil {
		return 0
	}
	return u.named - u.subscribers[u.Mixed.Names[0]]
}
