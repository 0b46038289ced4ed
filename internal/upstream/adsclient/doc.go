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
// (response.go). Conversation.Applied then records what was applied, and queues the ACK.
//
// LastVersions outlive the stream. With them the next stream can list the held versions
// (lastversions.go). Resubscriptions say what the key dropped and wants again, so that the stream
// requests it again although the interest looks the same (interest.go).
//
// # Concurrency
//
// A Conversation and its LastVersions have one owner at a time. BuildUpdate is a pure function and
// may be called from any goroutine; so may the methods of a Decision.
package adsclient
