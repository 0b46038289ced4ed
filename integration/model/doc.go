// Package model holds the whole relay, in one process, against a plain map:
// random clients of both variants before it and a random origin behind it, in
// all four combinations. What a client holds at rest is what the origin has of
// what it asked for (P60); on the way nothing is sent twice without cause (P33),
// nothing refused is sent again by itself (P15), and nothing is removed that the
// origin did not remove (P25, P57, P65).
//
//	make model              for as long as one likes: CASES=100000
//
// A case is a bubble of testing/synctest with the relay's real parts and real
// gRPC between them, over pipes in memory: time is the bubble's, so that ACKs
// which are withheld, absences, and reconnects cost nothing.
//
// A case that failed need not fail again: what the driver does is drawn, but
// which of several goroutines that are ready runs first is the scheduler's, and
// the relay's jitter and map orders differ from run to run. What origin and
// relay said is therefore written out where a client is held against the origin.
//
// # Concurrency
//
// A case's driver is one goroutine. It lets everything else come to rest before
// it looks at anything.
package model
