// Package status prints the clients of a running relay, or of all members of its cluster, with the state
// of each type, and the relay's own problems.
//
// # Concurrency
//
// A [Report] is not safe for concurrent use. Nothing here starts a goroutine, but adminclient asks
// several members at once.
package status
