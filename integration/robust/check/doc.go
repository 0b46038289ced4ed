// Package check checks the history of a run against the rules that the relay has to keep. A history
// has what origins published, what clients requested and received, and which connections faults
// touched, in one order. The checker is a pure function of the history. It uses no relay, no
// network and no clock.
//
// # Rules
//
// A violation begins with the name of its rule.
//
//   - published: a resource that a client receives was published before, for its key, type and
//     name, byte for byte (by SHA-256).
//   - order: no client goes back. The contents of a resource on one stream follow each origin's
//     order of publications. A new stream begins no earlier than what other clients of the same
//     relay's process already have. Nothing is older than what an origin was known to have when the
//     process began. A process with a store may serve older contents, and is compared with what was
//     stored at the last rest.
//   - removal: a resource is removed, or left out of a complete response, only if an origin did not
//     have it at that point.
//   - newest: at rest every client has the newest of everything that it subscribes to.
//   - unbroken: a stream whose connection no fault touched ends only when its client ends it. The
//     exception is P53: nothing of the key is held, and no origin is reachable. The exception does
//     not apply to a client that first requests something that the relay's store has for certain.
//     That means: a client held it at the last rest and subscribed to it until the relay was
//     killed, and every origin has had it since.
//   - reference: a client receives no route to a cluster that it was not sent, if the relay had
//     that cluster for all earlier clients. In a store each type has its own age, which may be from
//     before the last rest.
//   - process: no relay ends by itself.
//   - protocol: no client saw the relay break the protocol.
//
// # What "order" allows
//
// A client that moves to the other relay may receive an older state, because that relay may have
// been cut off for longer. The bound is what that process had sent to any client by then, and what
// was known at its start. There are several origins, each with its own order, and one may lag
// behind the other. So a change of origin may go back in time as well, but never behind what the
// same origin sent before. Two origins may have published the same bytes, and a removal does not
// name its origin. Then the checker follows every possible reading, and reports a violation when
// none is left. Repeated contents also allow several readings. The checker takes the earliest
// possible one, which forbids least.
//
// A relay receives resources of the wildcard and resources by name on different streams, which need
// not be in step (P50). Each is compared with its own kind only.
//
// A relay with a store (store.path) serves stored resources while no origin is reachable: after a
// start, and for names that were not wanted meanwhile. So contents that it once sent to a client
// are not a lower bound. The bounds are the contents of clients that subscribe all the time, and
// what clients held at the last rest. The run waits after a rest until the store has that. The
// checker does not check by the clock how much later the store was written.
//
// # Concurrency
//
// A Writer may be used by any number of goroutines. The order of the calls is the order of the
// history. Everything else belongs to its caller.
package check
