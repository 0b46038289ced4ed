// Package rest serves REST-JSON: clients that poll for resources by HTTP POST (P70 to P72).
//
// A request goes through the handler (handler.go), which reads it into a question (request.go).
// The question belongs to a Poller (poller.go): what one node polls again and again of one type.
// A poller is a member of its group for longer than its polls last. The Poll (poll.go) waits for
// news of its poller, and is answered by a document (document.go), which all polls of the same
// question share.
//
// # Concurrency
//
// A Server is safe for concurrent use. Serve returns when the polls that it took have ended.
// Polls are answered by the goroutines of net/http. A poller's state is under the lock of the
// table of all pollers. No lock is held across a send, a receive, a callback or a log line.
package rest
