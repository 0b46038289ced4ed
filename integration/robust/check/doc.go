// Package check holds the history of a run of the relay against what the relay
// owes to those on both sides of it. A history is what origins published, what
// clients asked for and received, and which connections faults touched, in one
// order. The checker is a pure function of it: it knows no relay, no network
// and no clock.
//
// # Rules
//
// Each has a name, which a violation begins with.
//
//   - published: what a client receives was published for its key, type and
//     name, byte for byte (by SHA-256), and before it was received.
//   - order: nobody goes back. On one stream what is received of a resource
//     follows each origin's order of publications. A stream that is opened
//     when others of the same relay's process already have something, begins
//     no earlier than there; and nothing is older than what an origin was known
//     to have when the process began. A process with a store is allowed more, and
//     is held against what was stored at the last rest.
//   - removal: a resource is removed, or missing where everything has to be,
//     only in a state of an origin in which it was not there.
//   - newest: at rest everybody has the newest of all that it asks for.
//   - unbroken: a stream whose connection no fault touched ends only when its
//     client ends it. The exception is P53: nothing of the key is held, and
//     there is no origin. It is none for who asks first for something that the
//     relay's store has for sure: somebody held it at the last rest, and asked for
//     it until the relay was killed, and no origin was without it since.
//   - reference: a route leads to no cluster that its client was not given
//     while the relay had it for all who came before. Of what is stored each type
//     is of its own time, and may be of before the last rest.
//   - process: no relay ends by itself.
//   - protocol: no client saw the relay break the protocol.
//
// # What "order" allows
//
// A client that moves to the other relay may be given an older state: that
// relay may have been cut off for longer. How much older is bounded by what
// that process had given to anybody by then, and by its start. There are
// several origins, each with an order of its own, and one may lag behind the
// other: so a change of origin may go back in time as well, but never behind
// what the same origin was the source of before. Two origins may have published
// the same bytes, and a removal does not say whose it is: then the checker
// follows every possible reading, and complains when none is left. Contents that
// are published again make for readings too; it takes the earliest one
// possible, which forbids least.
//
// What a relay has under the wildcard and what it has by name come by
// different streams, that need not be in step (P50): each is held against its
// own kind only.
//
// A relay with a store (store.path) serves what is stored while no origin can be
// reached: after a start, and for what nobody asked for any more meanwhile. So
// what it once gave to somebody is no floor, but what those have who ask for it all the
// time is, and what clients held at the last rest, after which the run
// waits until the store has it. How much later than that the store was written
// is nowhere judged by the clock.
//
// # Concurrency
//
// A Writer may be used by any number of goroutines; the order in which it is
// called is the order of the history. All else belongs to its caller.
package check
