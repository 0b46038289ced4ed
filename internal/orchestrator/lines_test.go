package orchestrator

import (
	"bytes"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// Clients that have keys come and go at will write no more of the log than a restart
// needs, and then so many lines a second.
func TestLinesOfKeysAreBounded(t *testing.T) {
	var log bytes.Buffer
	bubble(t, func(o *Options) { o.Log, o.MaxIdle = slog.New(slog.NewTextHandler(&log, nil)), 1 }, func(w *world) {
		count := func() int { return bytes.Count(log.Bytes(), []byte("msg=\"key ")) }
		for i := range 2 * linesBurst {
			w.join(fmt.Sprint("k", i), eds).leave()
		}
		equal(t, "lines", count(), linesBurst)
		time.Sleep(time.Second)
		w.join("last", eds)
		synctest.Wait()
		if n := count(); n <= linesBurst || n > linesBurst+linesRate {
			t.Errorf("%d lines a second later", n)
		}
		if !bytes.Contains(log.Bytes(), []byte("left_out=")) {
			t.Error("nobody says that lines were left out")
		}
	})
}
