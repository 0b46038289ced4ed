package logging

import (
	"bytes"
	"io"
	"log/slog"
	"sync/atomic"
	"time"
)

const (
	// maxQueuedLines bounds the lines that wait for stderr. A line has a few hundred bytes.
	maxQueuedLines = 4096
	// stuckAfter is how long stderr may take no line before this is a problem.
	stuckAfter = 5 * time.Second
	// flushTimeout is how long the process waits at its end for the lines that are left.
	flushTimeout = time.Second
)

// Queue is between the log and stderr, which blocks if it is a pipe that nobody reads. Write
// never blocks: without room it drops the line. Any goroutine may call its methods, Run once.
type Queue struct {
	to      io.Writer
	lines   chan []byte
	stop    chan struct{} // closed by Flush
	ended   chan struct{} // closed when Run returns
	dropped atomic.Int64
	failing atomic.Pointer[failure] // nil: the last line was written
}

// failure is why a line is not written. A write that has not returned has no error.
type failure struct {
	since time.Time
	err   error
}

// NewQueue makes a queue of lines for a writer. It starts nothing.
func NewQueue(to io.Writer) *Queue {
	return &Queue{to: to, lines: make(chan []byte, maxQueuedLines), stop: make(chan struct{}), ended: make(chan struct{})}
}

// Write queues a line. It returns no error.
func (q *Queue) Write(line []byte) (int, error) {
	select {
	case q.lines <- bytes.Clone(line):
	default:
		q.dropped.Add(1)
	}
	return len(line), nil
}

// Run writes lines until Flush is called and no line is left. When stderr takes lines again, it
// says in log, which writes to q, how many are missing.
func (q *Queue) Run(log *slog.Logger) {
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

func (q *Queue) write(line []byte) {
	since := time.Now()
	if f := q.failing.Load(); f != nil {
		since = f.since
	} else {
		q.failing.Store(&failure{since: since})
	}
	if _, err := q.to.Write(line); err != nil {
		q.dropped.Add(1)
		q.failing.Store(&failure{since, err})
		return
	}
	q.failing.Store(nil)
}

// Flush ends Run, and reports whether all lines were handed to stderr within flushTimeout.
// Otherwise another write to stderr would wait too.
func (q *Queue) Flush() bool {
	close(q.stop)
	select {
	case <-q.ended:
		return true
	case <-time.After(flushTimeout):
		return false
	}
}

// Stuck returns since when stderr takes no lines, and why; false: it takes them, or the time is short.
func (q *Queue) Stuck() (since time.Time, why string, is bool) {
	f := q.failing.Load()
	if f == nil || time.Since(f.since) < stuckAfter {
		return time.Time{}, "", false
	}
	why = "nobody reads it"
	if f.err != nil {
		why = f.err.Error()
	}
	return f.since, why, true
}

// Lost returns how many lines were dropped.
func (q *Queue) Lost() int64 { return q.dropped.Load() }
