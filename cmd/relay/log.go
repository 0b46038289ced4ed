package main

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"unicode/utf8"

	"xdsrelay/config"
	"xdsrelay/internal/telemetry/logsample"
	"xdsrelay/internal/telemetry/redact"
)

// newLog makes the log of the process and the variable that changes its level. Secrets are
// redacted, and lines that repeat are sampled.
func newLog(w io.Writer, c config.Log) (*slog.Logger, *slog.LevelVar, error) {
	level := new(slog.LevelVar)
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		return nil, nil, fmt.Errorf("log.level: %w", err)
	}
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: shortened}
	var out slog.Handler = slog.NewTextHandler(w, opts)
	if c.Format == config.FormatJSON {
		out = slog.NewJSONHandler(w, opts)
	}
	return slog.New(logsample.New(redact.Handler(out))), level, nil
}

// maxLogged is how much of a value is logged, in bytes. Much of what is logged
// comes from clients and origins, which may send a megabyte of it.
const maxLogged = 512

// shortened is the attribute with at most maxLogged bytes of its value, and how
// many more it had. This is the one place that sees to it: who logs need not.
func shortened(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindString:
		if s := a.Value.String(); len(s) > maxLogged {
			a.Value = slog.StringValue(shorten(s))
		}
	case slog.KindAny: // errors, and types that are strings
		if s := fmt.Sprintf("%+v", a.Value.Any()); len(s) > maxLogged {
			a.Value = slog.StringValue(shorten(s))
		}
	}
	return a
}

func shorten(s string) string {
	end := maxLogged
	for end > maxLogged-utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	return fmt.Sprintf("%s… (%d bytes more)", strings.ToValidUTF8(s[:end], "\uFFFD"), len(s)-end)
}
