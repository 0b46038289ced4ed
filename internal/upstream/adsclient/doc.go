// Package adsclient is the client's side of one ADS stream, SotW or delta, without the stream. It
// decides what to send, and what a response means. It performs no I/O, starts no goroutine and
// reads no clock.
//
// A Conversation lives as long as one stream (conversation.go). It takes the key's interest and
// returns the requests to send: subscriptions, ACKs and NACKs. sotw.go and delta.go have the
// differences between the variants. request.go encodes requests and keeps them below the maximum
// size.
//
// A response passes through three steps. Conversation.Receive returns a Decision: whether to accept
// it. BuildUpdate makes a snapshot.Update of an accepted response, given the held snapshot
// (response.go). Conversation.Applied then queues the ACK.
//
// A Resumption outlives the stream. With it the next stream can list the held versions
// (resumption.go). An InterestCell holds the newest interest until the stream takes it
// (interest.go). SetInterest says what changed since the last one.
//
// # Concurrency
//
// A Conversation and its Resumption have one owner at a time. BuildUpdate is a pure function and
// may be called from any goroutine; so may the methods of a Decision. An InterestCell is safe for
// concurrent use, but only one goroutine may call Take.
package adsclient
