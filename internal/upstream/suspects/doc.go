// Package suspects has what the stream of a key at one origin does not carry, because the origin may
// end the stream for it (P68).
//
// Origins end a stream because of one type that they do not know, or one name that they reject. The
// key's clients share the stream, so one client's request would end it for all of them. A suspect is a
// part of the interest that the origin has not answered. A List has the suspects that are excluded
// from the key's stream (list.go). They are tried on a stream of their own: all of them, then halves,
// until those that end a stream alone are found. The others return to the key's stream. A Trial says
// what such a stream carries, and what the origin has not answered yet (trial.go).
//
// # Concurrency
//
// Nothing here is safe for concurrent use. The package starts no goroutine and reads no clock.
package suspects
