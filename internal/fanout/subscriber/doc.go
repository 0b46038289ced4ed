// Package subscriber is the interface between a client and the group of its key: what a client
// tells its group, and what the group tells the client. Streams and REST polls use it; the
// orchestrator implements it.
//
// # Concurrency
//
// The types here are interfaces and values. Each interface says which of its methods may be
// called at the same time.
package subscriber
