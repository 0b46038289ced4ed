package logsample

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"xdsrelay/internal/xdstest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func sampled(t *testing.T, level slog.Level, do func(log *slog.Logger, out *xdstest.Log)) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		out := new(xdstest.Log)
		h := New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: level}))
		do(slog.New(h), out)
		h.Flush()
	})
}

func TestRepeatedLinesAreCounted(t *testing.T) {
	sampled(t, slog.LevelInfo, func(log *slog.Logger, out *xdstest.Log) {
		for round := range 2 {
			for i := range 1000 {
				log.Info("refused", "reason", "identity", "node", i)
			}
			if n := len(out.Take()); n != PerKind {
				t.Errorf("round %d: %d lines", round, n)
			}
			time.Sleep(Window)
			synctest.Wait()
			got := out.Take()
			if len(got) != 1 || !strings.Contains(got[0], " reason=identity node=999 last=") || !strings.HasSuffix(got[0], fmt.Sprint(" left_out=", 1000-PerKind-1)) {
				t.Errorf("round %d: %q", round, got)
			}
		}
		time.Sleep(10 * Window)
		synctest.Wait()
		if got := out.Take(); len(got) > 0 {
			t.Errorf("without a line: %q", got)
		}
	})
}

// A kind is a level, a message and some attributes, from the logger or the call.
func TestKinds(t *testing.T) {
	sampled(t, slog.LevelInfo, func(log *slog.Logger, out *xdstest.Log) {
		lines := []func(){
			func() { log.Info("a") },
			func() { log.Warn("a") },
			func() { log.Info("b") },
			func() { log.Info("a", "key", "x") },
			func() { log.Info("a", "key", "y") },
			func() { log.Info("a", "type", "x") },
			func() { log.Info("a", "key", "x", "version", 1) },
			func() { log.Info("a", "reason", "x") },
			func() { log.With("key", "z").Info("a") },
			func() { log.With("origin", "z").Info("a", "key", "x") },
		}
		for _, line := range lines {
			for range PerKind + 1 {
				line()
			}
		}
		if n := len(out.Take()); n != len(lines)*PerKind {
			t.Errorf("%d lines of %d kinds", n, len(lines))
		}
		log.With("key", "x").Info("a")                 // as in the record itself
		log.WithGroup("g").Info("a", "key", "another") // attributes of a group make no kind
		log.WithGroup("g").With("key", "another").Info("a")
		if got := out.Take(); len(got) > 0 {
			t.Errorf("%q are other kinds", got)
		}
	})
}

// Clients may cause any number of kinds: a message has a bounded number of lines.
func TestKindsAreBounded(t *testing.T) {
	sampled(t, slog.LevelInfo, func(log *slog.Logger, out *xdstest.Log) {
		for i := range 10 * Kinds {
			log.Info("key in use", "key", i)
		}
		if n := len(out.Take()); n != Kinds {
			t.Errorf("%d lines", n)
		}
		log.Info("another message")
		if n := len(out.Take()); n != 1 {
			t.Errorf("another message: %d lines", n)
		}
		time.Sleep(Window)
		synctest.Wait()
		if got := out.Take(); len(got) != 1 || !strings.Contains(got[0], fmt.Sprintf("key=%d last=", 10*Kinds-1)) || !strings.HasSuffix(got[0], fmt.Sprintf(" left_out=%d", 9*Kinds-1)) {
			t.Errorf("%q", got)
		}
	})
}

// The level debug leaves nothing out. A single line that was left out is written without a number.
func TestDebugAndFlush(t *testing.T) {
	sampled(t, slog.LevelDebug, func(log *slog.Logger, out *xdstest.Log) {
		for range 5 * PerKind {
			log.Info("a")
		}
		if n := len(out.Take()); n != 5*PerKind {
			t.Errorf("%d lines", n)
		}
	})
	sampled(t, slog.LevelInfo, func(log *slog.Logger, out *xdstest.Log) {
		for i := range PerKind + 1 {
			log.Info("a", "i", i)
		}
		out.Take()
		log.Handler().(*Handler).Flush()
		if got := out.Take(); len(got) != 1 || !strings.Contains(got[0], fmt.Sprint("msg=a i=", PerKind, " last=")) || strings.Contains(got[0], "left_out") {
			t.Errorf("%q", got)
		}
	})
}

// The lines of a window's end are in the order of time, also after lines that came later.
func TestLinesAreInOrder(t *testing.T) {
	sampled(t, slog.LevelInfo, func(log *slog.Logger, out *xdstest.Log) {
		for i := range 50 {
			for range PerKind + 2 {
				log.Info("a", "key", i)
			}
			time.Sleep(time.Millisecond)
		}
		out.Take()
		log.Info("b")
		time.Sleep(Window)
		synctest.Wait()
		got := out.Take()
		if len(got) != 51 || !slices.IsSortedFunc(got, func(a, b string) int { return strings.Compare(a[:29], b[:29]) }) { // their times
			t.Errorf("%d lines: %q", len(got), got)
			return
		}
		for i, line := range got[1:] {
			if !strings.Contains(line, fmt.Sprintf(" key=%d last=", i)) {
				t.Errorf("line %d is %q", i, line)
			}
		}
	})
}

// What a user asked for is never left out.
func TestRequestedLinesAreWritten(t *testing.T) {
	sampled(t, slog.LevelInfo, func(log *slog.Logger, out *xdstest.Log) {
		for range 3 * PerKind {
			log.With(Requested, true).Info("configuration has not changed")
		}
		if n := len(out.Take()); n != 3*PerKind {
			t.Errorf("%d lines", n)
		}
	})
}

func TestConcurrentLines(t *testing.T) {
	out := new(xdstest.Log)
	h := New(slog.NewTextHandler(out, nil))
	log := slog.New(h)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 1000 {
				log.With("key", i%7).Info("a", "type", i%3)
				if i%100 == 0 {
					h.Flush()
				}
			}
		})
	}
	all.Wait()
}
