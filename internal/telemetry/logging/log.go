package logging

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

// New makes the log of the process and the variable with its level. The log hides secrets and
// samples repeated lines.
func New(w io.Writer, c config.Log) (*slog.Logger, *slog.LevelVar, error) {
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

// maxLogged bounds a logged value in bytes. Clients and origins may send values of a megabyte.
const maxLogged = 512

// shortened cuts the attribute's value to maxLogged bytes and adds how many bytes are missing. It
// is the only place that does so: calls of the log need not.
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
