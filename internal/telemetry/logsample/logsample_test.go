package logsample

import (
	"fmt"
	"log/slog"
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
			if len(got) != 1 || !strings.Contains(got[0], fmt.Sprintf(` level=INFO msg="lines left out" message=refused reason=identity left_out=%d last=`, 1000-PerKind)) {
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
		if got := out.Take(); len(got) != 1 || !strings.Contains(got[0], fmt.Sprintf(`msg="lines left out" message="key in use" left_out=%d last=`, 9*Kinds)) {
			t.Errorf("%q", got)
		}
	})
}

// The level debug leaves nothing out. The end of the process is the end of a window.
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
		if got := out.Take(); len(got) != 1 || !strings.Contains(got[0], " message=a left_out=1 last=") {
			t.Errorf("%q", got)
		}
	})
}

// A line that was left out is not written later, when what it says may be over. The end of the window
// says how many of each kind there were, in the order of their last lines.
func TestNoLineIsWrittenLate(t *testing.T) {
	sampled(t, slog.LevelInfo, func(log *slog.Logger, out *xdstest.Log) {
		origin := log.With("origin", "o", "of", "x")
		for range PerKind + 2 {
			origin.Warn("origin is away")
			time.Sleep(time.Millisecond)
			origin.Info("origin is back")
		}
		time.Sleep(time.Millisecond)
		origin.Warn("origin is away")
		origin.Info("origin answers again")
		if got := out.Take(); len(got) != 2*PerKind+1 {
			t.Errorf("%d lines: %q", len(got), got)
		}
		time.Sleep(Window)
		synctest.Wait()
		got := out.Take()
		if len(got) != 2 || !strings.Contains(got[0], ` level=INFO msg="lines left out" message="origin is back" origin=o left_out=2 last=`) ||
			!strings.Contains(got[1], ` level=WARN msg="lines left out" message="origin is away" origin=o left_out=3 last=`) ||
			got[0][:34] > got[1][:34] { // their times
			t.Errorf("%q", got)
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
