// Package inspect says what each client has of each type that it requests: for the status page and
// `relay status`, for CSDS and for metrics. An Inspector lists the clients of a server. A Type
// computes the state of one type of a stream, from its session and its Tracker.
//
// # Concurrency
//
// An Inspector is safe for concurrent use. It reads one client at a time, and holds no lock. A
// Tracker and a Type are used under the lock of their stream. Everything else here is a value.
package inspect
