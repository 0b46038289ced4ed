package envoy

import (
	"os"
	"testing"
)

// long skips a long test unless ENVOY_LONG is set.
func long(t *testing.T) {
	t.Helper()
	if os.Getenv("ENVOY_LONG") == "" {
		t.Skip("long; make envoy runs it")
	}
}
