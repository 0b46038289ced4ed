// Package connections has the gRPC connections to one origin: how they are dialed and secured, which
// one a new stream uses, and why none can be made.
//
// A Pool leases connections to streams (pool.go). A Connection dials, and explains its failures
// (connection.go). TLSFiles make the credentials (credentials.go).
//
// # Concurrency
//
// All types are safe for concurrent use. The package starts no goroutine; gRPC does, from the first
// use of a connection until it is closed.
package connections
