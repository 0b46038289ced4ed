package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"
	"google.golang.org/grpc/grpclog"

	"xdsrelay/config"
)

// Errors of grpc and OpenTelemetry are lines of the log, without secrets. Other lines of grpc are
// dropped.
func TestErrorsOfLibrariesAreLinesOfTheLog(t *testing.T) {
	var out bytes.Buffer
	log, _, err := newLog(&out, config.Log{Level: "info", Format: config.FormatJSON})
	if err != nil {
		t.Fatal(err)
	}
	l := &libraryLog{LoggerV2: libraryErrors.LoggerV2}
	l.to.Store(log)
	var g grpclog.LoggerV2 = l
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
}
