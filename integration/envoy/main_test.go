// Package envoy runs real Envoys behind the built relay: go-control-plane as
// the origin, Envoy 1.40 with the bootstraps of config/clients, and HTTP
// requests through its listeners.
//
// `make envoy` runs these tests, the long ones too. `make test` runs them with
// -short.
package envoy

import (
	"os"
	"testing"

	"xdsrelay/internal/xdstest"
)

func TestMain(m *testing.M) {
	os.Exit(xdstest.Main(m))
}
