// Package subscribertest has groups for tests of streams and REST polls: a subscriber.Joiner
// without an orchestrator.
//
// # Concurrency
//
// A Source, its groups and their subscribers are safe for concurrent use. Their exported fields
// are under the lock beside them.
package subscribertest
