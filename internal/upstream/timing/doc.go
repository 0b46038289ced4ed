// Package timing says when the relay does something at an origin: backoff between attempts, pauses
// between requests, turns of probes, and which ends of streams are too many.
//
// # Concurrency
//
// A Probes is safe for concurrent use. The other types belong to one goroutine, or to the lock of
// their owner.
package timing
