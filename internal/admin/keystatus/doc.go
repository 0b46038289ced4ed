// Package keystatus is what operators read about the keys in use: what each key holds of each type,
// how many clients have each version, which NACKs there were, and what a client lacks. A Reader
// reads it from the orchestrator's groups, without stalling them.
//
// The JSON fields of the types are the admin API's: see the documentation of the package admin.
//
// # Concurrency
//
// A Reader is safe for concurrent use. The values that it returns belong to the caller, except the
// snapshots and resources in them, which are immutable.
package keystatus
