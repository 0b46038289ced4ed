// Package fleet simulates xDS clients, for the demo and the tests. A Client uses the
// aggregated service, in either variant, of any server: the relay or an origin. It keeps what it
// receives exactly as a real client does, so that tests can compare what clients hold. It also
// checks the server's side of the protocol (Violations).
//
// It shares no code with the relay but the names of the types. A misunderstanding of the protocol
// in the relay must not be repeated in what tests it.
//
// # Behaviours
//
// Envoy subscribes to Listener and Cluster by the legacy wildcard, and to the routes and load
// assignments that these refer to. A new or changed cluster of type EDS is warming until its load
// assignment comes, or WarmTimeout passes. The ACKs of Cluster wait until no cluster is warming.
// The real Envoy does this only after its first clusters are active. Here the first response's ACK
// waits too, because that is harder for a server.
//
// GRPC subscribes by name, from one listener: its route configuration, the clusters of the routes
// (and the members of aggregate clusters), and their load assignments. For a type without names any
// more it sends an empty list, as grpc-go and grpc-js do.
//
// Raw subscribes to what the test says, for any type, and follows no references. It subscribes to a
// type by the legacy wildcard or by names, and not by both.
//
// # Simplifications
//
// The client accepts or rejects a response as a whole. Resources do not expire. It does not know
// aliases, and does not follow scoped routes and secrets. It compares xdstp:// collections ("/*") as
// plain names.
//
// # Concurrency
//
// All methods of Client and Fleet are safe for concurrent use. Run may be called once; it returns
// when all goroutines that it started have ended. A client has one reader, the goroutine of Run,
// and gRPC's own goroutines. A writer runs while there are requests to send, so that a server that
// does not read never blocks the reader. The reader calls the hooks and Nack without a lock, and
// waits for them. Returned values belong to the caller, except bodies, which are shared and must
// not change.
package fleet
