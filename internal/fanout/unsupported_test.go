package fanout

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xdstest"
)

// A call that the relay does not support is counted, logged with its peer, and remembered for the
// status.
func TestUnsupportedCallsAreNamed(t *testing.T) {
	const delta = "/" + aggregated + "/DeltaAggregatedResources"
	for name, tc := range map[string]struct {
		method string
		option []grpc.DialOption
		reason telemetry.Reason
		text   string
	}{
		"service": {"/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats", nil, telemetry.UnknownMethod, "no method /envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats"},
		"method":  {"/" + aggregated + "/FetchAggregatedResources", nil, telemetry.UnknownMethod, "no method /" + aggregated + "/FetchAggregatedResources"},
		//nolint:staticcheck // A registered compressor would change the other tests.
		"gzip": {delta, []grpc.DialOption{grpc.WithCompressor(grpc.NewGZIPCompressor())}, telemetry.Compression, "the client compresses its requests with gzip"},
	} {
		t.Run(name, func(t *testing.T) {
			var log xdstest.Log
			r := newServerFixture(t, func(o *Options) { o.Log = log.Logger() })
			s := xdstest.Must(xdstest.Dial(t, r.addr, nil, tc.option...).NewStream(xdstest.Context(t), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, tc.method))(t)
			if err := s.RecvMsg(nil); status.Code(err) != codes.Unimplemented {
				t.Errorf("ended with %v", err)
			}
			r.counted(tc.reason, 1)
			r.recently(tc.reason, tc.text)
			if log.Count(`msg="client stream refused" peer=127.0.0.1:`) != 1 || log.Count(tc.text) != 1 {
				t.Error(&log)
			}
		})
	}
}
