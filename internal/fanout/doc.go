// Package fanout is the downstream side of the relay: streams of clients, the
// frames that all who need the same share, and the scheduler that sends them. What
// each type of a stream is sent, package session decides.
//
// A stream's handler goroutine only receives. It scans a request on the wire,
// changes its session under the stream's lock, says to the group what the
// client wants, and marks the stream dirty. As many workers as cores take dirty
// streams, look up the member's State, ask the session what that means for this
// client, get the shared frame for it (frame.go), and send it with a nonce of its
// own (codec.go). A slow client is one dirty bit a type, never a queue: that is
// also the coalescing.
//
// REST polls (rest.go) are answered by their own goroutines, as net/http has
// them: a poll waits for its poller's news, and takes the document that all who
// ask the same share. A poller is in its group for longer than its polls last.
//
// # Concurrency
//
// A Server is safe for concurrent use; Run returns when its workers have, and
// ServeREST when the polls that it took have ended. A
// stream's sessions are changed under the stream's lock, by its receiver or by
// the one worker that has it. Whether a worker has it, and whether a message is
// in flight, is one atomic word (runstate.go). No lock is held across a send, a
// receive, a channel operation, a callback or a log line, and no more than one at
// a time; Member.State, which takes none, is the one call that is made under it.
// The one callback under a lock is that which compares frames for the sets that
// all keys of the process share (shared.go): it is given to a WeakSet, and takes no
// lock. Frames are immutable, and made under none. Waker's methods may be called
// from anywhere and block on nothing. One goroutine of Run, the watcher, looks at
// all streams now and then: at what is in flight each time, and at old states when
// much may be old.
package fanout
