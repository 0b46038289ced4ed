// Package fanout is the downstream side of the relay: streams of clients, the frames that clients
// with equal needs share, and the scheduler that sends them. Package session decides what to send
// of each type on a stream. Package rest serves polls.
//
// The goroutine of a stream's handler only receives (stream.go). It scans a request on the wire,
// changes the type's session under the stream's lock, tells the group what the client requests, and
// marks the stream dirty. There are as many workers as cores (scheduler.go). A worker takes a dirty
// stream, loads its subscriber's State, and asks the session what to send to this client (send.go).
// It gets the shared frame (frame.go) and sends it with the stream's own nonce (nonce, codec.go). A
// slow client costs one dirty bit for each type and no queue: it skips intermediate changes.
//
// # Concurrency
//
// A Server is safe for concurrent use. Run returns when its workers have, and ServeREST when the
// polls that it took have ended. A stream's sessions change under the stream's lock, by its
// receiver or by the one worker that has it. One atomic word says whether a worker has the stream
// and whether a message is in flight (runstate.go).
//
// No lock is held across a send, a receive, a channel operation, a callback or a log line, and no
// more than one lock at a time. There are two exceptions, which take no lock: Subscriber.State and
// Subscriber.RoutesWait are called under the stream's lock, and frames are compared under the lock
// of a WeakSet (frame.go). Frames are immutable, and encoded under no lock. The methods of
// subscriber.Waker may be called from anywhere and do not block.
//
// One goroutine of Run checks all streams at intervals (slow_clients.go): messages in flight each
// time, and old snapshots when they may hold much memory. Another ends the clients whose keys
// changed (rekey.go).
package fanout
