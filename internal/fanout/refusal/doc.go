// Package refusal is why a client's stream, poll or connection is refused or ended: a status
// for the client, and a reason for the metrics.
//
// # Concurrency
//
// A Refusal is not changed once it is shared.
package refusal
