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
			if len(got) != 1 || !strings.HasSuffix(got[0], fmt.Sprint(" reason=identity node=999 left_out=", 1000-PerKind-1)) {
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
		if got := out.Take(); len(got) != 1 || !strings.HasSuffix(got[0], fmt.Sprintf("key=%d left_out=%d", 10*Kinds-1, 9*Kinds-1)) {
			t.Errorf("%q", got)
		}
	})
}

// The level debug leaves nothing out. A single line that was left out is written unchanged.
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
		if got := out.Take(); len(got) != 1 || !strings.HasSuffix(got[0], fmt.Sprint("msg=a i=", PerKind)) {
			t.Errorf("%q", got)
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
