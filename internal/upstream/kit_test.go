package upstream

import (
	"xdsrelay/internal/upstream/upstreamtest"
	"xdsrelay/internal/xds"
)

const (
	cds = xds.ClusterType
	eds = xds.EndpointType
	rds = xds.RouteType
)

type (
	resp = upstreamtest.Response
	res  = upstreamtest.Resource
)

var testKey = xds.NewKey("key")

var (
	named       = upstreamtest.Named
	all         = upstreamtest.All
	ask         = upstreamtest.Ask
	show        = upstreamtest.Show
	clusters    = upstreamtest.Clusters
	eachVariant = upstreamtest.EachVariant
	resourceOf  = upstreamtest.ResourceOf
)

// testSink is a group without members that records the status of its stream.
type testSink struct {
	*upstreamtest.Sink
	statuses []Status
}

func newTestSink() *testSink { return &testSink{Sink: upstreamtest.NewSink()} }

func (s *testSink) Status(st Status) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.statuses = append(s.statuses, st)
	s.Notify()
}

// lastStatus returns the newest status. The caller holds the lock.
func (s *testSink) lastStatus() Status {
	if len(s.statuses) == 0 {
		return Status{}
	}
	return s.statuses[len(s.statuses)-1]
}
