// Package grpcio runs Python's grpcio as an xDS client of the built relay.
// grpcio is gRPC's C-core, which C++, Ruby and PHP use too. Its implementation
// of xDS shares no code with grpc-go's, which package integration tests.
package grpcio

import (
	"os"
	"testing"

	"xdsrelay/internal/xdstest"
)

func TestMain(m *testing.M) {
	os.Exit(xdstest.Main(m))
}
