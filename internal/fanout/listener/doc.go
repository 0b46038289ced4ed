// Package listener admits clients. It has:
//
//   - listeners and their TLS (listener.go, handshake.go),
//   - what a connection says about its client (caller.go),
//   - the identity that a client has to prove, and which clients get Secrets (policy.go),
//   - the limits on connections and streams (admission.go),
//   - the limits on a request (request.go), and on how much a stream sends (throttle.go).
//
// # Concurrency
//
// A Policy, a Caller and an Admission are safe for concurrent use. The fields of a Policy do not
// change once it is in use. Admission has one lock, under which it calls nothing. A Throttle belongs to
// one goroutine.
package listener
