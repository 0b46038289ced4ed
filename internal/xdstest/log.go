package xdstest

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Log collects what a program logs. It may be read while it is written. The zero value is empty.
type Log struct {
	mu   sync.Mutex
	text strings.Builder
}

// Logger writes to the log, without debug lines.
func (l *Log) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// Write appends to the log.
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// String returns the whole log.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Count returns how often the log holds a text.
func (l *Log) Count(text string) int { return strings.Count(l.String(), text) }

// Take returns the lines of the log and empties it.
func (l *Log) Take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := strings.Split(l.text.String(), "\n")
	l.text.Reset()
	return lines[:len(lines)-1] // the last line ends with a newline too
}

// Until waits for a line that holds all these texts, from line number at on. It returns the number
// of the next line.
func (l *Log) Until(t testing.TB, at int, texts ...string) (next int) {
	t.Helper()
	Eventually(t, "the log", func() error {
		lines := strings.SplitAfter(l.String(), "\n")
		for next = min(at, len(lines)); next < len(lines); {
			line := lines[next]
			next++
			if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
				return nil
			}
		}
		return fmt.Errorf("no line holds %q:\n%s", texts, l)
	})
	return next
}
