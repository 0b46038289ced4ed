// Package rest serves REST-JSON: clients that poll for resources by HTTP POST (P70 to P72).
//
// The handler (handler.go) reads a request and parses it (request.go). The request is a Poll
// (poll.go) of a Poller (poller.go): a node that polls one list of names of one type repeatedly.
// The poller stays a subscriber of its group between its polls. A poll waits until there is a
// response that its client does not have. The response is a document (document.go), which polls
// with equal subscriptions share. A type can be polled if the table of types (package xds) has a
// path for it.
//
// # Concurrency
//
// A Server is safe for concurrent use. Serve returns when the polls that it took have ended.
// Polls are answered by the goroutines of net/http. A poller's state is under the lock of the
// table of all pollers. No lock is held across a send, a receive, a callback or a log line.
package rest
