package main

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/grpc/grpclog"

	"xdsrelay/config"
)

// grpc's errors are lines of the log, without secrets; its other lines are dropped.
func TestErrorsOfGRPCAreLinesOfTheLog(t *testing.T) {
	var out bytes.Buffer
	log, _, err := newLog(&out, config.Log{Level: "info", Format: config.FormatJSON})
	if err != nil {
		t.Fatal(err)
	}
	var g grpclog.LoggerV2 = &grpcLog{LoggerV2: grpcErrors.LoggerV2}
	g.(*grpcLog).to.Store(log)
	g.Errorf("got %q, Bearer %s", "too_many_pings", "hunter2hunter2")
	g.Error("one")
	g.Errorln("two")
	g.Info("nothing")
	g.Warningf("nothing")
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 || strings.Contains(out.String(), "hunter2") || !strings.Contains(lines[0], `too_many_pings`) ||
		!strings.HasSuffix(lines[1], `"level":"ERROR","msg":"grpc reports an error","error":"one"}`) || !strings.HasSuffix(lines[2], `"error":"two"}`) {
		t.Error(&out)
	}
}
