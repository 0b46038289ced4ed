// Package history remembers what happened to a relay's keys: the NACKs of each key, and for each
// type the newest versions and the resources that they replaced. Operators read it; the relay
// serves nothing from it.
//
// A History has the bounds that all keys share. The group of a key writes to a Nacks and to one
// Type for each resource type.
//
// # Concurrency
//
// All types are safe for concurrent use. Note and Close of a Type are called by one goroutine at a
// time, the group's. A Nacks' lock is held while a lock of all NACKs is taken, never the other way
// round. No lock is held across a callback.
package history
