// Package turns has those that cost much come a few at a time.
//
// # Concurrency
//
// Turns are safe for concurrent use. They start nothing: who waits does so in its own
// goroutine.
package turns
