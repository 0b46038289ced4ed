// Package sessiontest has what tests of sessions and streams begin with: an origin, whose
// resources are short texts and become a group's snapshots, and requests on the wire.
//
// # Concurrency
//
// An Origin has one user at a time.
package sessiontest
