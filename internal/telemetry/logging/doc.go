// Package logging makes the log of the process: its format, its level, the lines of libraries, and the
// queue between the log and stderr.
//
// # Concurrency
//
// A [Queue] and the logs of libraries are safe for concurrent use. Run of a queue is called once, on a
// goroutine of the caller. Flush ends it.
package logging
