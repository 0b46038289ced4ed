package integration

import (
	"strings"
	"testing"

	"xdsrelay/internal/xdstest"
)

// Each kind of fault in OTEL_RESOURCE_ATTRIBUTES is logged. Lines of OpenTelemetry have the format of the log.
func TestTracesWithFaultyAttributes(t *testing.T) {
	t.Parallel()
	o := origin(t, "snapshot")
	config := xdstest.QuickConfig().With(xdstest.Config{"upstream.origins": xdstest.Origins(o.Address), "tracing.otlp_endpoint": "http://" + xdstest.FreeAddress(t)})
	log := start(t, "", []string{"OTEL_RESOURCE_ATTRIBUTES=share=50%,team"}, "serve", "--config", config.WriteFile(t)).Log()
	for _, fault := range []string{`invalid URL escape`, `partial resource: missing value: [team]`} {
		if want := `level=ERROR msg="library reports an error" library=OpenTelemetry error="` + fault; !strings.Contains(log, want) {
			t.Errorf("no %s in:\n%s", want, log)
		}
	}
	for line := range strings.Lines(log) {
		if !strings.HasPrefix(line, "time=") {
			t.Errorf("not a line of the log: %s", line)
		}
	}
}
