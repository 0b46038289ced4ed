// Package clustertest has a network in memory for the gossip of clusters in tests. It works inside a
// testing/synctest bubble.
//
// Packets arrive at once. Those that do not fit into the receiver's queue are lost, as are those on
// links that are cut. A stream is a net.Pipe, so both ends have to set deadlines.
//
// # Concurrency
//
// All methods are safe for concurrent use. The package starts no goroutines.
package clustertest
