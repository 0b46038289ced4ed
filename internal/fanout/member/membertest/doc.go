// Package membertest has groups for tests of streams and REST polls: a member.Source without
// an orchestrator.
//
// # Concurrency
//
// A Source, its groups and their members are safe for concurrent use. Their exported fields
// are under the lock beside them.
package membertest
