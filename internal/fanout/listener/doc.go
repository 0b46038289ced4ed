// Package listener admits clients: listeners and their TLS (listener.go, handshake.go), what a
// connection shows of its client (caller.go), the identity that a client has to prove and the
// clients that are given Secrets (policy.go), the limits on connections and streams
// (admission.go), and those on a request (request.go).
//
// # Concurrency
//
// A Policy, a Caller and an Admission are safe for concurrent use. The fields of a Policy do not
// change once it is in use. Admission has one lock, under which it calls nothing.
package listener
