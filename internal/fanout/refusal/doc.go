// Package refusal says why a client's stream, poll or connection is refused or ended. A Refusal
// has a status for the client and a reason for the metrics. A Log logs refusals and remembers
// those of the last minute.
//
// # Concurrency
//
// A Refusal is not changed once it is shared. A Log is safe for concurrent use.
package refusal
