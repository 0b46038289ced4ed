package tracing

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"xdsrelay/internal/telemetry"
)

// Standard environment variables of OTLP exporters.
const (
	endpointEnv       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	tracesEndpointEnv = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	headersEnv        = "OTEL_EXPORTER_OTLP_HEADERS"
	tracesHeadersEnv  = "OTEL_EXPORTER_OTLP_TRACES_HEADERS"
)

// tracesURL returns the URL for spans of a collector; empty: there is no collector. endpoint is the
// configured one.
func tracesURL(endpoint string) string {
	if endpoint == "" {
		if to := os.Getenv(tracesEndpointEnv); to != "" {
			return to
		}
		endpoint = os.Getenv(endpointEnv)
	}
	if endpoint == "" {
		return ""
	}
	return strings.TrimSuffix(endpoint, "/") + "/v1/traces"
}

// sender sends spans by OTLP over HTTP. It is not OpenTelemetry's own client, because that registers
// a compressor with grpc for the whole process. Then grpc would offer gzip to origins.
type sender struct {
	url     string
	headers http.Header
	http    http.Client
}

var _ otlptrace.Client = (*sender)(nil)

// sendTimeout bounds the sending of a batch, connecting included.
const sendTimeout = 10 * time.Second

func newSender(url, version string) *sender {
	s := &sender{url: url, headers: http.Header{"Content-Type": {"application/x-protobuf"}, "User-Agent": {"xdsrelay/" + version}}}
	s.http.Timeout = sendTimeout
	s.http.Transport = http.DefaultTransport.(*http.Transport).Clone()
	addHeaders(s.headers)
	return s
}

// addHeaders adds the headers of the environment, such as api-key=abc,team=mesh. It ignores parts
// that are no header.
func addHeaders(to http.Header) {
	for _, env := range []string{headersEnv, tracesHeadersEnv} {
		for part := range strings.SplitSeq(os.Getenv(env), ",") {
			name, value, found := strings.Cut(part, "=")
			if v, err := url.PathUnescape(strings.TrimSpace(value)); found && err == nil {
				to.Set(strings.TrimSpace(name), v)
			}
		}
	}
}

func (s *sender) Start(context.Context) error { return nil }

func (s *sender) Stop(context.Context) error {
	s.http.CloseIdleConnections()
	return nil
}

// maxAnswer bounds what is read of a collector's answer, in bytes.
const maxAnswer = 4 << 10

// UploadTraces implements otlptrace.Client.
func (s *sender) UploadTraces(ctx context.Context, spans []*tracev1.ResourceSpans) error {
	body, err := proto.Marshal(&collectorv1.ExportTraceServiceRequest{ResourceSpans: spans})
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header = s.headers
	answer, err := s.http.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return err
	}
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("%s: %s: %s", s.url, answer.Status, bytes.TrimSpace(said))
	}
	var result collectorv1.ExportTraceServiceResponse
	if err := proto.Unmarshal(said, &result); err != nil {
		return nil // a collector need not say more than 200
	}
	if p := result.GetPartialSuccess(); p.GetRejectedSpans() > 0 {
		return fmt.Errorf("collector rejected %d spans: %s", p.GetRejectedSpans(), p.GetErrorMessage())
	}
	return nil
}

// exporter counts the spans that it sends, and sends until a context ends.
type exporter struct {
	sdktrace.SpanExporter
	metrics *telemetry.Metrics
	until   context.Context
}

// ExportSpans implements sdktrace.SpanExporter. The SDK passes its errors to the process'
// otel.ErrorHandler.
func (e exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.until, cancel)()
	err := e.SpanExporter.ExportSpans(ctx, spans)
	result := telemetry.SpanSent
	if err != nil {
		result = telemetry.SpanFailed
	}
	e.metrics.Spans(result, len(spans))
	return err
}
