package envoy

import (
	"os"
	"testing"
)

// long skips a test that takes too long for `make test`.
func long(t testing.TB) {
	t.Helper()
	if os.Getenv("ENVOY_LONG") == "" {
		t.Skip("takes minutes: make envoy runs it")
	}
}
