// Package subscriptions knows what the members of a group subscribe to for one resource
// type. A Table makes equal subscriptions one value. An Index says which names have a
// subscriber, and which members a change of the snapshot affects.
//
// # Concurrency
//
// A Table is safe for concurrent use. An Index is not: it belongs to one goroutine, the
// group's.
package subscriptions
