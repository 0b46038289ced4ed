// Package memberread lets the members of a cluster read each other's admin API. A Reader asks others by
// a gRPC method at their cluster.address, and answers this method. Both ends have proven that they are
// members. So no token is needed.
//
// # Concurrency
//
// A Reader is safe for concurrent use. It starts no goroutines.
package memberread
