package logging

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"xdsrelay/config"
	"xdsrelay/internal/xds"
)

// Long values from clients and origins are cut in the log, with the number of missing bytes.
func TestLogValuesAreBounded(t *testing.T) {
	long := strings.Repeat("x", 60_000)
	for _, format := range []string{config.FormatText, config.FormatJSON} {
		for name, v := range map[string]any{
			"string": long, "error": fmt.Errorf("no: %w", errors.New(long)), "type": xds.TypeURL(long), "strings": []string{long, long},
			"wide": strings.Repeat("ä", 30_000), "offset": "x" + strings.Repeat("\u4e16", 20_000), "no text": strings.Repeat("\xff", 60_000),
		} {
			var out bytes.Buffer
			log, _, err := New(&out, config.Log{Level: "info", Format: format})
			if err != nil {
				t.Fatal(err)
			}
			log.With("of", v).WithGroup("g").Info("key in use", "node", v, "left_out", 3)
			line := out.String()
			// An escaped byte takes four bytes.
			if len(line) > 2*4*maxLogged+200 || !utf8.ValidString(line) {
				t.Errorf("%s, %s: %d bytes", format, name, len(line))
			}
			if strings.Count(line, " bytes more)") != 2 || !strings.Contains(line, "key in use") {
				t.Errorf("%s, %s: %s", format, name, line)
			}
			if name != "no text" && (strings.Contains(line, "\uFFFD") || strings.Contains(line, `\x`)) {
				t.Errorf("%s, %s: cut inside of a character: %s", format, name, line)
			}
		}
	}
}

func TestLogValuesThatFitAreWhole(t *testing.T) {
	whole := strings.Repeat("x", maxLogged)
	var out bytes.Buffer
	log, _, err := New(&out, config.Log{Level: "info", Format: config.FormatText})
	if err != nil {
		t.Fatal(err)
	}
	log.Info("x", "node", whole, "error", errors.New(whole), "n", 5, "none", nil)
	if line := out.String(); !strings.Contains(line, "node="+whole+" error="+whole+" n=5 none=<nil>\n") {
		t.Error(line)
	}
	out.Reset()
	log.Info("x", "node", whole+"yz")
	if line := out.String(); !strings.Contains(line, whole+"… (2 bytes more)") || strings.Contains(line, "y… ") {
		t.Error(line)
	}
}
