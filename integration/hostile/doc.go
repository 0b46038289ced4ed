// Package hostile attacks the built binary while honest clients use it, and
// holds each threat against its bounds: the relay lives, honest streams do not
// break and get changes about as fast as before, and when the attack is over
// the relay has its memory, descriptors and goroutines back.
//
// An attack runs in a process of its own with the lowest priority, as if it had
// a machine of its own: what the honest clients feel is what it costs the relay,
// and the cores that the relay uses meanwhile show it.
//
// HOSTILE=full runs the long form, in which the bounds are those that SECURITY.md
// states, and writes its table to the file HOSTILE_TABLE; `make hostile` does.
// HOSTILE_SHOW has the table printed in the short form too.
//
// # Concurrency
//
// The package has tests only. They run one after the other: they measure.
package hostile
