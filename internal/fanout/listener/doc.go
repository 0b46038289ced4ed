// Package listener is how clients come in: the listeners and their TLS, what a connection
// shows of its client, the identity that a client has to prove, and the limits on
// connections and streams.
//
// # Concurrency
//
// A Gate, a Caller and an Admission are safe for concurrent use. A Gate's fields are not
// changed once it is in use. Admission has one lock, which is held across nothing.
package listener
