// Package overview is the fleet in numbers, for open pages: how many clients of which key are in
// which state, and the state of the origins. It has a row for each of the most important keys, one
// for all others, and none for clients. So it is as large for 20,000 clients as for ten.
//
// A Hub gives it to open pages. The first page that wants the next event computes it for all. That
// happens at most once a second, less often if it takes long, and never while no page is open. A
// page takes the newest event whenever it has written the one before, so a slow page has no queue.
//
// # Concurrency
//
// Of is a function of its arguments. A Hub is safe for concurrent use. It starts no goroutine; its
// callers wait in theirs.
package overview
