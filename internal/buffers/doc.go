// Package buffers has the memory that received messages are put together in.
//
// # Concurrency
//
// One is safe for concurrent use. A buffer belongs to who asked for it, until it
// is freed.
package buffers
