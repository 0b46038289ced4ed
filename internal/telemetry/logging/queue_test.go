package logging

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

// A log that nobody reads stops nothing: lines without room are dropped and counted, it says
// since when it is stuck, and the end waits for a second only. Once lines are read, the log says how many
// are missing.
func TestLogQueueNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		q := NewQueue(w)
		log := slog.New(slog.NewTextHandler(q, nil))
		go q.Run(log)
		began := time.Now()
		const more = 10
		for i := range 1 + maxQueuedLines + more { // one is being written
			log.Info("line", "n", i)
			synctest.Wait()
		}
		if n := q.dropped.Load(); n != more {
			t.Errorf("%d lines were dropped, want %d", n, more)
		}
		if _, why, stuck := q.Stuck(); stuck {
			t.Errorf("stuck at once: %s", why)
		}
		time.Sleep(stuckAfter)
		if since, why, stuck := q.Stuck(); !stuck || !since.Equal(began) || why != "nobody reads it" {
			t.Errorf("stuck: %v since %v: %s", stuck, since, why)
		}
		if q.Flush() {
			t.Error("the lines were flushed, but nobody reads them")
		}
		if d := time.Since(began); d != stuckAfter+flushTimeout {
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
		if _, why, stuck := q.Stuck(); stuck {
			t.Errorf("stuck after all was read: %s", why)
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
		q := NewQueue(w)
		log := slog.New(slog.NewTextHandler(q, nil))
		go q.Run(log)
		log.Info("first")
		time.Sleep(stuckAfter)
		log.Info("second")
		synctest.Wait()
		if _, why, stuck := q.Stuck(); !stuck || !strings.Contains(why, "no space left") {
			t.Errorf("stuck: %v: %s", stuck, why)
		}
		w.err = nil
		log.Info("third")
		if !q.Flush() {
			t.Error("not flushed")
		}
		_, _, stuck := q.Stuck()
		if n, out := q.dropped.Load(), w.String(); n != 2 || stuck || !strings.Contains(out, "msg=third") || !strings.Contains(out, "lines=2") {
			t.Errorf("dropped %d, stuck %v: %s", n, stuck, out)
		}
	})
}
