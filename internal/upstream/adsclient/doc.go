// Package adsclient is the client's side of one ADS stream, SotW or delta,
// without the stream: it decides what to send, and what a response means. It
// does no I/O, starts no goroutine and reads no clock.
//
// A Conversation lives as long as one stream (conversation.go). It takes the
// key's interest and returns the requests to send: subscriptions, ACKs and NACKs.
// What differs between the variants is in sotw.go and delta.go. request.go encodes
// requests and keeps them below the maximum size.
//
// A response passes through three steps. Conversation.Receive returns a Decision:
// whether to accept it. Evaluate makes an xds.Update of an accepted response,
// given the snapshot that is held (evaluate.go). Conversation.Applied then has the
// ACK sent.
//
// A Resumption outlives the stream: it has what the next one needs to say which
// versions are held (resumption.go). An InterestCell holds the newest interest until
// the stream takes it (interest.go).
//
// # Concurrency
//
// A Conversation and its Resumption have one owner at a time. Evaluate is a pure
// function and may be called from any goroutine; so may the methods of a Decision.
// An InterestCell is safe for concurrent use, with one goroutine that takes.
package adsclient
