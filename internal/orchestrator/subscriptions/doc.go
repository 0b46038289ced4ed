// Package subscriptions has the subscriptions of a group's members for one resource type. A Table
// makes equal subscriptions one value. An Index says which names have a subscriber, and which
// members a change of the snapshot affects. UserAgents counts the programs of the members.
//
// # Concurrency
//
// A Table is safe for concurrent use. An Index and UserAgents are not: they belong to one
// goroutine, the group's.
package subscriptions
