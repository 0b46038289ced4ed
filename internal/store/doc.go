// Package store keeps the last known good on disk: the resources of a key that the relay may serve
// after a restart while no origin answers (P66).
//
// The store is a directory with one file for each key and type. A file holds the newest generation
// of the type that any client acknowledged, and a SHA-256 over everything before it (file.go). Its
// modification time is when an origin last confirmed the content. A file is replaced as a whole, so
// a crash leaves the old one or the new one.
//
// Secrets (P6), resources that must not be cached (P63) and resources with a TTL (P62) are never
// written. Private keys inside of other types, as in the inline certificates of a listener, are
// written as they are. The files have mode 0600.
//
// # Faults
//
// A damaged file is renamed, logged and counted. The store switches itself off if the directory
// cannot be written, or if an operation makes no progress for 5 s (availability.go). It then reads
// and writes nothing. Each minute it tries to open the directory again.
//
// # Concurrency
//
// All methods are safe for concurrent use. Only Run's goroutine changes the directory
// after Open. Load reads files in its caller's goroutine. The mutex is never held across
// I/O or a log line.
package store
