// Package overview is the fleet in numbers, for pages that are open all the
// time: how many clients of which key are in which state, and what the origins
// do. It has a row for the keys that matter most and one for all others, and
// none for a client, so that it is as large for 20,000 clients as for ten.
//
// A Hub gives it to open pages. It is computed by whichever page wants the next
// one first, for all of them: at most once a second, less often where it takes
// long, and not at all while no page is open. A page takes the newest whenever it
// has written the one before, so nothing is queued for a slow one.
//
// # Concurrency
//
// Of is a function of its arguments. A Hub is safe for concurrent use; it starts
// no goroutine, and only waits in those of its callers.
package overview
