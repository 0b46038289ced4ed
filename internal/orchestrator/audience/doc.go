// Package audience has the subscriptions of a key's clients. An Audience has a Type for each resource type in
// use. A Type knows the subscription of each subscriber. It merges them into what the key
// subscribes to at its origin, with the names that linger, and finds the subscribers that a change
// affects.
//
// A subscriber is any comparable value; the package only hands it back. It starts no goroutine,
// reads no clock and does no I/O. The time is an argument.
//
// # Concurrency
//
// A Table is safe for concurrent use. All else belongs to one goroutine, the group's.
package audience
