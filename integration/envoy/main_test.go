// Package envoy runs real Envoys behind the built relay: go-control-plane as
// the origin, Envoy 1.40 with the bootstraps of config/clients, and HTTP
// requests through its listeners.
//
// `make envoy` runs all of these tests. `make test` leaves out the long ones
// (see long).
package envoy

import (
	"os"
	"testing"

	"xdsrelay/internal/xdstest"
)

func TestMain(m *testing.M) {
	os.Exit(xdstest.Main(m))
}
