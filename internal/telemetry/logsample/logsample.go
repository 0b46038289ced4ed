package logsample

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// Window is how long lines are counted before the count begins again.
	Window = 30 * time.Second
	// PerKind is how many lines of one kind are written at once in a window.
	PerKind = 10
	// Kinds is the number of kinds of one message that are counted separately in a window.
	Kinds = 100
)

// Requested is the attribute of loggers whose lines answer what a user asked for. These are all written.
const Requested = "requested"

// Handler leaves out lines that repeat.
type Handler struct {
	next   slog.Handler
	kind   string // the attributes that the logger brings and that make a kind
	all    bool   // the logger has the attribute Requested: no line is left out
	group  bool   // the attributes of a record are in a group: none of them makes a kind
	counts *counts
}

// New returns a handler that passes lines on to next, except repeated ones.
func New(next slog.Handler) *Handler {
	return &Handler{next: next, counts: &counts{kinds: make(map[kind]*count), messages: make(map[string]int)}}
}

// Enabled implements slog.Handler.
func (h *Handler) Enabled(ctx context.Context, l slog.Level) bool { return h.next.Enabled(ctx, l) }

// Handle implements slog.Handler.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	if !h.all && !h.Enabled(ctx, slog.LevelDebug) && !h.counts.allow(h, r) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *Handler) WithAttrs(as []slog.Attr) slog.Handler {
	out := *h
	out.next = h.next.WithAttrs(as)
	if !h.group {
		for _, a := range as {
			out.kind += part(a)
			out.all = out.all || a.Key == Requested
		}
	}
	return &out
}

// WithGroup implements slog.Handler.
func (h *Handler) WithGroup(name string) slog.Handler {
	out := *h
	out.next, out.group = h.next.WithGroup(name), name != "" || h.group
	return &out
}

// Flush writes the counts of the current window. Call it before the process ends.
func (h *Handler) Flush() { h.counts.flush() }

// kind is what the lines of one kind have in common.
type kind struct {
	level   slog.Level
	message string
	attrs   string // "" with rest
	rest    bool   // the lines of all kinds beyond Kinds
}

// kindOf returns the kind of a line that the handler was given.
func (h *Handler) kindOf(r slog.Record) kind {
	var attrs strings.Builder
	attrs.WriteString(h.kind)
	if !h.group {
		r.Attrs(func(a slog.Attr) bool {
			attrs.WriteString(part(a))
			return true
		})
	}
	return kind{level: r.Level, message: r.Message, attrs: attrs.String()}
}

// part is the text by which an attribute makes a kind, or "".
func part(a slog.Attr) string {
	switch a.Key {
	case "key", "type", "version", "reason", "origin":
		return a.Key + "=" + a.Value.String() + "\n"
	}
	return ""
}

// counts are the lines of the current window. Handlers made by WithAttrs share them.
type counts struct {
	mu       sync.Mutex
	kinds    map[kind]*count
	messages map[string]int // the number of a message's kinds
}

// count is what happened to the lines of one kind.
type count struct {
	written int
	leftOut int
	last    slog.Record  // the last line that was left out
	by      slog.Handler // the handler that it was for
}

// allow counts a line and reports whether it is to be written.
func (c *counts) allow(h *Handler, r slog.Record) bool {
	k := h.kindOf(r)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.kinds) == 0 {
		time.AfterFunc(Window, c.flush)
	}
	n := c.kinds[k]
	if n == nil && c.messages[k.message] >= Kinds {
		k = kind{level: k.level, message: k.message, rest: true}
		n = c.kinds[k]
	}
	if n == nil {
		n = new(count)
		c.kinds[k] = n
		c.messages[k.message]++
	}
	if n.written < PerKind && !k.rest {
		n.written++
		return true
	}
	n.leftOut++
	n.last, n.by = r.Clone(), h.next
	return false
}

// flush ends the window. It writes one line for each kind with lines that were left out, the oldest
// first. The line has the time at which it is written, so the log is in the order of time, and its own
// time as the attribute "last".
func (c *counts) flush() {
	c.mu.Lock()
	ended := c.kinds
	c.kinds, c.messages = make(map[kind]*count), make(map[string]int)
	c.mu.Unlock()
	left := slices.DeleteFunc(slices.Collect(maps.Values(ended)), func(n *count) bool { return n.leftOut == 0 })
	slices.SortFunc(left, func(a, b *count) int { return a.last.Time.Compare(b.last.Time) })
	for _, n := range left {
		n.last.AddAttrs(slog.Time("last", n.last.Time))
		n.last.Time = time.Now()
		if n.leftOut > 1 {
			n.last.AddAttrs(slog.Int("left_out", n.leftOut-1)) // the line itself is written now
		}
		_ = n.by.Handle(context.Background(), n.last)
	}
}
