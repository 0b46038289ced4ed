package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A log that nobody reads stops nothing: lines without room are dropped and counted, the problem
// says since when, and the end waits for a second only. Once lines are read, the log says how many
// are missing.
func TestLogQueueNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		q := newLogQueue(w)
		log := slog.New(slog.NewTextHandler(q, nil))
		go q.run(log)
		began := time.Now()
		const more = 10
		for i := range 1 + maxQueuedLines + more { // one is being written
			log.Info("line", "n", i)
			synctest.Wait()
		}
		if n := q.dropped.Load(); n != more {
			t.Errorf("%d lines were dropped, want %d", n, more)
		}
		if p := q.problems(); len(p) != 0 {
			t.Errorf("a problem at once: %v", p)
		}
		time.Sleep(logStuckAfter)
		if p := q.problems(); len(p) != 1 || !p[0].Since.Equal(began) || !strings.Contains(p[0].Text, "nobody reads it") {
			t.Errorf("problems: %v", p)
		}
		if q.flush() {
			t.Error("the lines were flushed, but nobody reads them")
		}
		if d := time.Since(began); d != logStuckAfter+logFlushTimeout {
			t.Errorf("the end took %v", d)
		}
		lines := bufio.NewScanner(r)
		for i := range 1 + maxQueuedLines {
			if !lines.Scan() || !strings.HasSuffix(lines.Text(), fmt.Sprintf("msg=line n=%d", i)) {
				t.Fatalf("line %d is %q", i, lines.Text())
			}
		}
		if !lines.Scan() || !strings.HasSuffix(lines.Text(), fmt.Sprintf("stderr did not take them\" lines=%d", more)) {
			t.Errorf("the last line is %q", lines.Text())
		}
		<-q.ended
		if p := q.problems(); len(p) != 0 {
			t.Errorf("a problem after all was read: %v", p)
		}
	})
}

// failingWriter fails while err is set.
type failingWriter struct {
	bytes.Buffer
	err error
}

func (w *failingWriter) Write(b []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	return w.Buffer.Write(b)
}

// A failed write, as of a full volume, loses the line and no later one.
func TestLogQueueWriteFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &failingWriter{err: errors.New("no space left on device")}
		q := newLogQueue(w)
		log := slog.New(slog.NewTextHandler(q, nil))
		go q.run(log)
		log.Info("first")
		time.Sleep(logStuckAfter)
		log.Info("second")
		synctest.Wait()
		if p := q.problems(); len(p) != 1 || !strings.Contains(p[0].Text, "no space left") {
			t.Errorf("problems: %v", p)
		}
		w.err = nil
		log.Info("third")
		if !q.flush() {
			t.Error("not flushed")
		}
		if n, out := q.dropped.Load(), w.String(); n != 2 || len(q.problems()) != 0 || !strings.Contains(out, "msg=third") || !strings.Contains(out, "lines=2") {
			t.Errorf("dropped %d, %v: %s", n, q.problems(), out)
		}
	})
}
