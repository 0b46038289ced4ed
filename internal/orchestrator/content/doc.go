// Package content says what origins sent for a key. A Content has a Type for each resource type in
// use. An Update goes into its Type with the time; a new snapshot comes out. A Type also delays
// deletions (P36), ends TTLs (P62), says when the answer to a wildcard is complete (P67), takes what
// the store has (P66), and says which names requests omit (P52).
//
// The package starts no goroutine, reads no clock and does no I/O. It knows an upstream stream by its
// Stream, and nothing of clients.
//
// # Concurrency
//
// A Content and its Types belong to one goroutine, the group's. Any goroutine may call a Type's
// Newest, Stored and Acked.
package content
