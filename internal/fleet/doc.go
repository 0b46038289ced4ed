// Package fleet simulates xDS clients: the one implementation that the demo,
// the tests and the load use. A Client speaks the aggregated service, in
// either variant, to any server: the relay or an origin itself. It keeps what
// it was given exactly as a real client would, so that what two clients hold
// can be compared, and it watches the server's half of the protocol while it
// does so (Violations).
//
// It shares no code with the relay but the names of the types: a fault in the
// relay's own reading of the protocol must not be repeated by what tests it.
//
// # Behaviours
//
// Envoy asks for Listener and Cluster by the legacy wildcard and for the
// routes and load assignments that these name. A new or changed cluster of
// type EDS is warming until its load assignment came (or WarmTimeout passed),
// and the ACKs of Cluster wait until none is. The real Envoy does so only once
// its first clusters are active; here the first response's ACK waits too,
// since that is the harder case for a server.
//
// GRPC asks by name, from one listener: its route configuration, the clusters
// that the route names (of aggregate clusters also the members), their load
// assignments. A type whose last name was given up is asked for with an empty
// list, as grpc-go and grpc-js do.
//
// Raw asks for what it is told, for any type, and follows nothing.
//
// # What is simplified
//
// A response is taken or refused as a whole. A resource's TTL is recorded but
// does not expire. Scoped routes and secrets are not followed. xdstp://
// collections ("/*") are compared as plain names.
//
// # Concurrency
//
// All methods of Client and Fleet are safe for concurrent use. Run may be
// called once; it returns when all that it started has ended. A client costs
// one reader (the goroutine of Run) and gRPC's own goroutines; requests are
// written by a goroutine that lives while there is something to write, so that
// a server that does not read never keeps the client from reading. Hooks and
// Refuse are called on the reader, without any lock; the client reads on when
// they return. What Held, Get, Names and the like return belongs to the
// caller, except for bodies, which are shared and must not be changed.
package fleet
