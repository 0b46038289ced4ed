// Package inspect says what each client has, of each type that it asks for: for the status page
// and `relay status`, for CSDS and for metrics. An Inspector lists the clients of a server. A
// Type says how one type of a stream stands, from its session and from what its Tracker noted.
//
// # Concurrency
//
// An Inspector is safe for concurrent use. It asks one client at a time, and holds no lock. A
// Tracker and a Type are used under the lock of their stream. All else here are values.
package inspect
