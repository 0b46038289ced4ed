package logsample

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
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
	attrs  []slog.Attr // the attributes that the logger brings and that make a kind
	all    bool        // the logger has the attribute Requested: no line is left out
	group  bool        // the attributes of a record are in a group: none of them makes a kind
	counts *counts
}

// New returns a handler that passes lines on to next, except repeated ones.
func New(next slog.Handler) *Handler {
	return &Handler{next: next, counts: &counts{next: next, kinds: make(map[kind]*count), messages: make(map[string]int)}}
}

func (h *Handler) Enabled(ctx context.Context, l slog.Level) bool { return h.next.Enabled(ctx, l) }

func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	if !h.all && !h.Enabled(ctx, slog.LevelDebug) && !h.counts.allow(h, r) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

func (h *Handler) WithAttrs(as []slog.Attr) slog.Handler {
	out := *h
	out.next = h.next.WithAttrs(as)
	if !h.group {
		out.attrs = slices.Concat(h.attrs, slices.DeleteFunc(slices.Clone(as), makesNoKind))
		out.all = h.all || slices.ContainsFunc(as, func(a slog.Attr) bool { return a.Key == Requested })
	}
	return &out
}

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

// kindOf returns the kind of a line that the handler was given, and its attributes.
func (h *Handler) kindOf(r slog.Record) (kind, []slog.Attr) {
	attrs := slices.Clone(h.attrs)
	if !h.group {
		r.Attrs(func(a slog.Attr) bool {
			if !makesNoKind(a) {
				attrs = append(attrs, a)
			}
			return true
		})
	}
	return kind{level: r.Level, message: r.Message, attrs: fmt.Sprintf("%q", attrs)}, attrs
}

func makesNoKind(a slog.Attr) bool {
	switch a.Key {
	case "key", "type", "version", "reason", "origin":
		return false
	}
	return true
}

// counts are the lines of the current window. Handlers made by WithAttrs share them.
type counts struct {
	next     slog.Handler // without attributes of loggers
	mu       sync.Mutex
	kinds    map[kind]*count
	messages map[string]int // the number of a message's kinds
}

// count is what happened to the lines of one kind.
type count struct {
	written int
	leftOut int
	last    time.Time   // of the last line that was left out
	attrs   []slog.Attr // of the kind; none with rest
}

// allow counts a line and reports whether it is to be written.
func (c *counts) allow(h *Handler, r slog.Record) bool {
	k, attrs := h.kindOf(r)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.kinds) == 0 {
		time.AfterFunc(Window, c.flush)
	}
	n := c.kinds[k]
	if n == nil && c.messages[k.message] >= Kinds {
		k, attrs = kind{level: k.level, message: k.message, rest: true}, nil
		n = c.kinds[k]
	}
	if n == nil {
		n = &count{attrs: attrs}
		c.kinds[k] = n
		c.messages[k.message]++
	}
	if n.written < PerKind && !k.rest {
		n.written++
		return true
	}
	n.leftOut++
	n.last = r.Time
	return false
}

// flush ends the window. It writes one line for each kind with lines that were left out, in the order of
// their last lines: of an origin that is away and back again and again, the last one says how it is.
func (c *counts) flush() {
	c.mu.Lock()
	ended := c.kinds
	c.kinds, c.messages = make(map[kind]*count), make(map[string]int)
	c.mu.Unlock()
	kinds := slices.SortedFunc(maps.Keys(ended), func(a, b kind) int { return ended[a].last.Compare(ended[b].last) })
	for _, k := range kinds {
		n := ended[k]
		if n.leftOut == 0 {
			continue
		}
		r := slog.NewRecord(time.Now(), k.level, "lines left out", 0)
		r.AddAttrs(slog.String("message", k.message))
		r.AddAttrs(n.attrs...)
		r.AddAttrs(slog.Int("left_out", n.leftOut), slog.Time("last", n.last))
		_ = c.next.Handle(context.Background(), r)
	}
}
