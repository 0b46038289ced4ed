// Package model compares the whole relay, in one process, with a plain map. Random clients of both
// variants and a random origin use it, in all four combinations. At rest a client holds the
// origin's resources for its subscriptions (P60). On the way nothing is sent twice without cause
// (P33), and a rejected response is not resent by itself (P15). Nothing is removed that the origin
// did not remove (P25, P57, P65).
//
//	make model              runs it longer: CASES=100000
//
// A case is a bubble of testing/synctest with the relay's real parts and real gRPC between them,
// over pipes in memory. Time is the bubble's, so that withheld ACKs, absences and reconnects cost
// no real time.
//
// TestCluster_Model does the same with a cluster: three to six relays with gossip in memory, one
// origin, and events such as deaths, drains, cut links and an origin that refuses. Its clients answer by
// themselves and check each response. Nothing is removed that the origin did not remove, nothing older
// follows something newer, and no stream ends without cause. A minute after the events, each key has
// one stream at the origin, and each client has what the origin has. TestCluster_Events runs the events
// one by one.
//
// A failed case may not fail again. The driver's actions are reproducible, but the scheduler
// decides which of several ready goroutines runs first, and the relay's jitter and map orders
// differ from run to run. So a failing comparison prints the messages between origin and relay.
//
// # Concurrency
//
// A case's driver is one goroutine. It waits until everything else is at rest before it checks
// anything.
package model
