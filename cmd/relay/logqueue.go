package main

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"xdsrelay/internal/admin/overview"
)

const (
	// maxQueuedLines bounds the lines that wait for stderr. A line has a few hundred bytes.
	maxQueuedLines = 4096
	// logStuckAfter is how long stderr may take no line before this is a problem.
	logStuckAfter = 5 * time.Second
	// logFlushTimeout is how long the process waits at its end for the lines that are left.
	logFlushTimeout = time.Second
)

// logQueue is between the log and stderr, which blocks if it is a pipe that nobody reads. Write
// never blocks: without room it drops the line. Any goroutine may call its methods, run once.
type logQueue struct {
	to      io.Writer
	lines   chan []byte
	stop    chan struct{} // closed by flush
	ended   chan struct{} // closed when run returns
	dropped atomic.Int64
	failing atomic.Pointer[logFailure] // nil: the last line was written
}

// logFailure is why a line is not written. A write that has not returned has no error.
type logFailure struct {
	since time.Time
	err   error
}

func newLogQueue(to io.Writer) *logQueue {
	return &logQueue{to: to, lines: make(chan []byte, maxQueuedLines), stop: make(chan struct{}), ended: make(chan struct{})}
}

// Write queues a line. It returns no error.
func (q *logQueue) Write(line []byte) (int, error) {
	select {
	case q.lines <- bytes.Clone(line):
	default:
		q.dropped.Add(1)
	}
	return len(line), nil
}

// run writes lines until flush is called and no line is left. When stderr takes lines again, it
// says in log, which writes to q, how many are missing.
func (q *logQueue) run(log *slog.Logger) {
	defer close(q.ended)
	var reported int64
	for stop := q.stop; ; {
		select {
		case line := <-q.lines:
			q.write(line)
		case <-stop:
			stop = nil
		}
		if n := q.dropped.Load(); n > reported && len(q.lines) == 0 && q.failing.Load() == nil {
			log.Warn("log lines were dropped, because stderr did not take them", "lines", n-reported)
			reported = n
		}
		if stop == nil && len(q.lines) == 0 {
			return
		}
	}
}

func (q *logQueue) write(line []byte) {
	since := time.Now()
	if f := q.failing.Load(); f != nil {
		since = f.since
	} else {
		q.failing.Store(&logFailure{since: since})
	}
	if _, err := q.to.Write(line); err != nil {
		q.dropped.Add(1)
		q.failing.Store(&logFailure{since, err})
		return
	}
	q.failing.Store(nil)
}

// flush ends run, and reports whether all lines were handed to stderr within logFlushTimeout.
// Otherwise another write to stderr would wait too.
func (q *logQueue) flush() bool {
	close(q.stop)
	select {
	case <-q.ended:
		return true
	case <-time.After(logFlushTimeout):
		return false
	}
}

// problems has a problem while stderr takes no lines.
func (q *logQueue) problems() []overview.Problem {
	f := q.failing.Load()
	if f == nil || time.Since(f.since) < logStuckAfter {
		return nil
	}
	why := "nobody reads it"
	if f.err != nil {
		why = f.err.Error()
	}
	return []overview.Problem{{Severity: overview.Warning, Since: f.since,
		Text:   fmt.Sprintf("stderr takes no log lines: %s", why),
		Impact: "Clients are served. The log misses what happens now; xdsrelay_log_dropped_lines_total counts the lost lines.",
		Next:   "Look at what reads the relay's stderr: a log driver or pipe that hangs, a full volume, a terminal after Ctrl-S."}}
}
