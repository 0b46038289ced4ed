// Package terminal prints what commands show: tables, texts, diffs and data, on a terminal or into a
// pipe.
//
// Texts from clients and origins are shown with [Visible], so that a terminal does not interpret them.
// A table on a terminal is cut to its width.
//
// # Concurrency
//
// The functions may be called concurrently for different writers. An [Output] is not safe for
// concurrent use. Nothing here starts a goroutine.
package terminal
