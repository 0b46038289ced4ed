package filesource

import (
	"testing"

	"go.uber.org/goleak"

	"xdsrelay/internal/upstream/upstreamtest"
	"xdsrelay/internal/xds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	cds = xds.ClusterType
	eds = xds.EndpointType
	rds = xds.RouteType
)

var (
	named = upstreamtest.Named
	all   = upstreamtest.All
)
