// Package xds holds the nouns of the relay: resources, snapshots, states,
// subscriptions, keys and nodes, and the wire forms of requests and responses.
//
// It is floor 0: it starts no goroutine, does no I/O, reads no clock and
// imports nothing internal.
//
// # Concurrency
//
// Resource, NameSet, Subscription, Snapshot, State, Key and Node are immutable
// once made and may be shared freely. There are three exceptions, each an atomic:
// Subscription.Sole, a hint that may be out of date; what is derived from a
// Snapshot, which is made when first asked for and may be let go; and in the
// content of a resource, the last Resource that was made of it. A Builder and a
// Names have one owner at a time. Functions that scan or build wire forms keep no
// state; what a scan returns aliases its input, as each one says. WeakSet and
// NodeTable are safe for concurrent use; the contents of resources (content.go) are
// in such sets, which the whole process shares. Find and Keep of a WeakSet call
// equal under the set's lock, the one callback that is called under a lock: it
// compares memory and takes no other lock.
package xds
