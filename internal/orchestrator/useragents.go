package orchestrator

import "time"

// userAgents counts the members of a group by the name of their user agent, such as "envoy".
// Members of one key should be programs of one kind, because the origin sends all of them the same
// resources (P58). A member without a name counts as no kind. The group's goroutine owns it.
type userAgents struct {
	members map[string]int   // by name; only names that a member or the representative has
	named   int              // members with a name
	mixed   *MixedUserAgents // nil: the names do not differ
}

// MixedUserAgents describes a key whose members differ in the name of their user agent. It is
// immutable.
type MixedUserAgents struct {
	// Names has two of the names. If the representative is a client's node, the first one is its.
	Names [2]string
	Since time.Time
}

// add counts a member in. It reports whether the members begin to differ.
func (u *userAgents) add(name string, now time.Time) (began bool) {
	if name == "" {
		return false
	}
	if u.members == nil {
		u.members = make(map[string]int)
	}
	if u.mixed == nil && u.named > 0 && u.members[name] == 0 {
		u.mixed = &MixedUserAgents{Names: [2]string{u.otherThan(name), name}, Since: now}
		began = true
	}
	u.members[name]++
	u.named++
	return began
}

// remove counts a member out. It reports whether the members no longer differ.
func (u *userAgents) remove(name string) (ended bool) {
	if name == "" {
		return false
	}
	u.named--
	if u.members[name]--; u.members[name] > 0 {
		return false
	}
	delete(u.members, name)
	switch was := u.mixed; {
	case was == nil:
		return false
	case len(u.members) == 1:
		u.mixed = nil
		return true
	case name == was.Names[0]:
		u.mixed = &MixedUserAgents{Names: [2]string{was.Names[1], u.otherThan(was.Names[1])}, Since: was.Since}
	case name == was.Names[1]:
		u.mixed = &MixedUserAgents{Names: [2]string{was.Names[0], u.otherThan(was.Names[0])}, Since: was.Since}
	}
	return false
}

// otherThan returns one of the names that is not name; "" if there is none.
func (u *userAgents) otherThan(name string) string {
	for other := range u.members {
		if other != name {
			return other
		}
	}
	return ""
}

// others counts the members with another name than the first of mixed.
func (u *userAgents) others() int {
	if u.mixed == nil {
		return 0
	}
	return u.named - u.members[u.mixed.Names[0]]
}
