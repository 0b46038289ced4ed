// Package rest serves REST-JSON: clients that poll for resources by HTTP POST (P70 to P72).
//
// The handler (handler.go) reads a request and parses it (request.go). The request belongs to a
// Poller (poller.go): what one node polls again and again of one type. A poller is a member of its
// group for longer than its polls last. The Poll (poll.go) waits for news of its poller, and is
// answered by a document (document.go), which polls with equal subscriptions share. A type is
// polled if the table of types (package xds) has a path for it.
//
// # Concurrency
//
// A Server is safe for concurrent use. Serve returns when the polls that it took have ended.
// Polls are answered by the goroutines of net/http. A poller's state is under the lock of the
// table of all pollers. No lock is held across a send, a receive, a callback or a log line.
package rest
