package redact

import (
	"context"
	"fmt"
	"log/slog"
)

// Error returns err with its text redacted. It still wraps the same errors.
func Error(err error) error {
	if err == nil {
		return nil
	}
	if s := Text(err.Error()); s != err.Error() {
		return &redactedError{s, err}
	}
	return err
}

type redactedError struct {
	text string
	err  error
}

func (s *redactedError) Error() string { return s.text }
func (s *redactedError) Unwrap() error { return s.err }

// Handler returns a handler that redacts messages and attributes.
func Handler(h slog.Handler) slog.Handler { return handler{h} }

type handler struct{ slog.Handler }

func (h handler) Handle(ctx context.Context, r slog.Record) error {
	out := slog.NewRecord(r.Time, r.Level, Text(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		out.AddAttrs(attr(a))
		return true
	})
	return h.Handler.Handle(ctx, out)
}

func (h handler) WithAttrs(as []slog.Attr) slog.Handler {
	var out []slog.Attr
	for _, a := range as {
		out = append(out, attr(a))
	}
	return handler{h.Handler.WithAttrs(out)}
}

func (h handler) WithGroup(name string) slog.Handler { return handler{h.Handler.WithGroup(name)} }

func attr(a slog.Attr) slog.Attr {
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindString, slog.KindAny:
		s := v.String()
		if v.Kind() == slog.KindAny {
			s = fmt.Sprintf("%+v", v.Any()) // as slog does, of errors and of the rest
		}
		if t := Text(s); t != s {
			return slog.String(a.Key, t)
		}
	case slog.KindGroup:
		var out []any
		for _, g := range v.Group() {
			out = append(out, attr(g))
		}
		return slog.Group(a.Key, out...)
	}
	return slog.Attr{Key: a.Key, Value: v}
}
