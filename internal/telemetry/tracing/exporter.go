package tracing

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// sendTimeout bounds the sending of a batch, connecting included.
const sendTimeout = 10 * time.Second

// sender sends spans by OTLP over gRPC. OpenTelemetry's own client registers a compressor with grpc
// for the whole process. With that, grpc would compress the shared bodies once for each client.
type sender struct {
	conn   *grpc.ClientConn
	client collectorv1.TraceServiceClient
}

var _ otlptrace.Client = (*sender)(nil)

// newSender makes the client of a collector. It connects when there is something to send.
func newSender(endpoint, version string) (*sender, error) {
	scheme, address, said := strings.Cut(endpoint, "://")
	if !said {
		scheme, address = "http", endpoint
	}
	creds := insecure.NewCredentials()
	if scheme == "https" {
		creds = credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12})
	}
	conn, err := grpc.NewClient(strings.TrimSuffix(address, "/"), grpc.WithTransportCredentials(creds), grpc.WithUserAgent("xdsrelay/"+version),
		grpc.WithMaxCallAttempts(1), grpc.WithDisableServiceConfig())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", endpoint, err)
	}
	return &sender{conn: conn, client: collectorv1.NewTraceServiceClient(conn)}, nil
}

// Start implements otlptrace.Client.
func (s *sender) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (s *sender) Stop(context.Context) error { return s.conn.Close() }

// UploadTraces implements otlptrace.Client. It waits for a collector that is just restarting.
func (s *sender) UploadTraces(ctx context.Context, spans []*tracev1.ResourceSpans) error {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	answer, err := s.client.Export(ctx, &collectorv1.ExportTraceServiceRequest{ResourceSpans: spans}, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	if p := answer.GetPartialSuccess(); p.GetRejectedSpans() > 0 {
		return fmt.Errorf("collector rejected %d spans: %s", p.GetRejectedSpans(), p.GetErrorMessage())
	}
	return nil
}
