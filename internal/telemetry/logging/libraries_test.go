package logging

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"

	"xdsrelay/config"
)

// Errors of grpc and OpenTelemetry are lines of the log, without secrets. Other lines of grpc are
// dropped, unless its environment variables ask for them.
func TestErrorsOfLibrariesAreLinesOfTheLog(t *testing.T) {
	var out bytes.Buffer
	log, _, err := New(&out, config.Log{Level: "info", Format: config.FormatJSON})
	if err != nil {
		t.Fatal(err)
	}
	l := new(libraryLog)
	l.to.Store(log)
	g := l.grpc("", "")
	var o otel.ErrorHandler = l
	g.Errorf("got %q, Bearer %s", "too_many_pings", "hunter2hunter2")
	g.Error("one")
	g.Errorln("two")
	o.Handle(errors.New("three"))
	g.Info("nothing")
	g.Warningf("nothing")
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 4 || strings.Contains(out.String(), "hunter2") || !strings.Contains(lines[0], `too_many_pings`) ||
		!strings.HasSuffix(lines[1], `"level":"ERROR","msg":"library reports an error","library":"grpc","error":"one"}`) || !strings.HasSuffix(lines[2], `"error":"two"}`) ||
		!strings.HasSuffix(lines[3], `"msg":"library reports an error","library":"OpenTelemetry","error":"three"}`) {
		t.Error(&out)
	}
	for severity, want := range map[string][]string{
		"warning": {`"level":"WARN","msg":"library reports","library":"grpc","text":"a: b"}`, `"level":"ERROR","msg":"library reports an error","library":"grpc","error":"c"}`},
		"INFO": {`"level":"INFO","msg":"library reports","library":"grpc","text":"more"}`, `"level":"WARN","msg":"library reports","library":"grpc","text":"a: b"}`,
			`"level":"ERROR","msg":"library reports an error","library":"grpc","error":"c"}`},
	} {
		out.Reset()
		g := l.grpc(severity, "2")
		g.Info("more")
		g.Warningf("a: %s", "b")
		g.Error("c")
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if !slices.EqualFunc(lines, want, strings.HasSuffix) || !g.V(2) || g.V(3) {
			t.Errorf("%s: %s", severity, &out)
		}
	}
}
