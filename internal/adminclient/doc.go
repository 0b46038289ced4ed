// Package adminclient is the HTTP client with which commands ask a running relay at its admin address,
// and the other members of its cluster over that relay.
//
// Its errors name the flag or the configuration key that is most likely wrong: no relay at the address,
// no TLS, another token.
//
// # Concurrency
//
// The methods of a [Client] may be called concurrently, except ReadToken and Close. [Ask] and [AskAll]
// ask several members at once, and return when all have answered. Nothing else starts a goroutine.
package adminclient
