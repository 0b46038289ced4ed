package tracing

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"xdsrelay/internal/telemetry"
)

// Options of a Tracer.
type Options struct {
	// Endpoint is the URL of a collector that speaks OTLP over HTTP, such as http://collector:4318. If
	// it is empty, the standard OTEL_EXPORTER_OTLP_ENDPOINT counts.
	Endpoint string
	// Sample is the share of responses that are traced, from 0 to 1.
	Sample float64
	// Replica and Version are the service's instance and version.
	Replica, Version string
	Metrics          *telemetry.Metrics
}

// Tracer makes spans and sends them. A nil Tracer does nothing.
type Tracer struct {
	opts     Options
	sender   *sender
	resource *resource.Resource
	tracer   atomic.Pointer[trace.Tracer] // nil: it does not run yet
	recent   recent
}

// flushFor bounds the sending after Run's context has ended.
const flushFor = 2 * time.Second

// New makes a Tracer. Without an endpoint it returns nil.
func New(o Options) *Tracer {
	to := tracesURL(o.Endpoint)
	if to == "" {
		return nil
	}
	about := []attribute.KeyValue{attribute.String("service.name", "xdsrelay")}
	if o.Replica != "" {
		about = append(about, attribute.String("service.instance.id", o.Replica))
	}
	if o.Version != "" {
		about = append(about, attribute.String("service.version", o.Version))
	}
	// OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME are added. An error is about parts without "=", which
	// are not added. sdktrace.WithResource reads the variables too, and reports this error to
	// OpenTelemetry's error handler.
	res, _ := resource.New(context.Background(), resource.WithAttributes(about...), resource.WithFromEnv())
	return &Tracer{opts: o, sender: newSender(to, o.Version), resource: res}
}

// Run sends until ctx ends, and then the rest for a bounded time. Nothing is traced before.
func (t *Tracer) Run(ctx context.Context) error {
	if t == nil {
		<-ctx.Done()
		return nil
	}
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	to, err := otlptrace.New(sending, t.sender)
	if err != nil {
		return fmt.Errorf("tracing: %w", err)
	}
	// The sampling is Sampled's, before a span is made. OTEL_BSP_* configures the batches.
	provider := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.AlwaysSample()), sdktrace.WithResource(t.resource),
		sdktrace.WithBatcher(exporter{to, t.opts.Metrics, sending}))
	t.tracer.Store(new(provider.Tracer("xdsrelay")))
	<-ctx.Done()
	defer time.AfterFunc(flushFor, cancel).Stop()
	if err := provider.Shutdown(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("tracing: %w", err)
	}
	return nil
}

// spans makes spans. Run was called.
func (t *Tracer) spans() trace.Tracer { return *t.tracer.Load() }

// Sampled decides whether a response is traced.
func (t *Tracer) Sampled() bool {
	return t != nil && t.tracer.Load() != nil && rand.Float64() < t.opts.Sample
}
