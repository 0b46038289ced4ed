package adsclient

import (
	"testing"

	"go.uber.org/goleak"

	"xdsrelay/internal/upstream/upstreamtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type (
	resp = upstreamtest.Response
	res  = upstreamtest.Resource
)

var (
	named         = upstreamtest.Named
	all           = upstreamtest.All
	ask           = upstreamtest.Ask
	show          = upstreamtest.Show
	clusters      = upstreamtest.Clusters
	eachVariant   = upstreamtest.EachVariant
	mustUnmarshal = upstreamtest.MustUnmarshal
)
