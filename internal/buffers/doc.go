// Package buffers has the memory pool for received messages.
//
// # Concurrency
//
// One is safe for concurrent use. A buffer belongs to its caller until the caller frees it.
package buffers
