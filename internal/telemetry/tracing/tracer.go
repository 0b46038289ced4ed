package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"os"
	"strings"
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
	// Endpoint of the collector, OTLP over gRPC: host:port or http://host:port for
	// plaintext, https://host:port for TLS.
	Endpoint string
	// Sample is the share of responses that are traced, from 0 to 1.
	Sample float64
	// Replica and Version are the service's instance and version.
	Replica, Version string
	Metrics          *telemetry.Metrics
	Log              *slog.Logger
}

// Tracer makes spans and sends them. A nil Tracer does nothing.
type Tracer struct {
	opts     Options
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	queue    *queue
	recent   recent
}

// Bounds.
const (
	// maxQueued bounds the spans that wait to be sent.
	maxQueued = 2048
	// maxBatch bounds the spans in one request.
	maxBatch = 512
	// sendEvery is the interval between two requests.
	sendEvery = 2 * time.Second
	// flushFor bounds the sending after Run's context has ended.
	flushFor = 2 * time.Second
)

// AttributesEnv is the environment variable with attributes of all traces.
const AttributesEnv = "OTEL_RESOURCE_ATTRIBUTES"

// EnvironmentFaults says what is wrong with AttributesEnv. A Tracer does without the attribute, or
// takes it as it is.
func EnvironmentFaults() (out []string) {
	all := strings.TrimSpace(os.Getenv(AttributesEnv))
	if all == "" {
		return nil
	}
	for part := range strings.SplitSeq(all, ",") {
		key, value, found := strings.Cut(part, "=")
		if !found {
			out = append(out, fmt.Sprintf("must be a list such as team=mesh,zone=a; the part %q is ignored", part))
		} else if _, err := url.PathUnescape(value); err != nil {
			out = append(out, fmt.Sprintf("the value of %s is not percent-encoded: %v", strings.TrimSpace(key), err))
		}
	}
	return out
}

// New makes a Tracer; without an endpoint it returns nil.
func New(o Options) *Tracer {
	if o.Endpoint == "" {
		return nil
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	about := []attribute.KeyValue{attribute.String("service.name", "xdsrelay")}
	if o.Replica != "" {
		about = append(about, attribute.String("service.instance.id", o.Replica))
	}
	if o.Version != "" {
		about = append(about, attribute.String("service.version", o.Version))
	}
	// OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME are added. An error is about some attributes, which
	// are not added. EnvironmentFaults has them.
	res, _ := resource.New(context.Background(), resource.WithAttributes(about...), resource.WithFromEnv())
	t := &Tracer{opts: o, queue: newQueue(o.Metrics, o.Log)}
	// The sampling is Sampled's, before a span is made.
	t.provider = sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.AlwaysSample()), sdktrace.WithResource(res), sdktrace.WithSpanProcessor(t.queue))
	t.tracer = t.provider.Tracer("xdsrelay")
	return t
}

// Run sends until ctx ends, and then the rest for a bounded time.
func (t *Tracer) Run(ctx context.Context) error {
	if t == nil {
		<-ctx.Done()
		return nil
	}
	to, err := newSender(t.opts.Endpoint, t.opts.Version)
	if err != nil {
		return fmt.Errorf("tracing: %w", err)
	}
	exporter := otlptrace.NewUnstarted(to)
	if err := exporter.Start(ctx); err != nil {
		return fmt.Errorf("tracing: %w", err)
	}
	t.queue.run(ctx, exporter)
	// The queue is empty, so this does not wait.
	if err := exporter.Shutdown(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("tracing: %w", err)
	}
	return nil
}

// Sampled decides whether a response is traced.
func (t *Tracer) Sampled() bool { return t != nil && rand.Float64() < t.opts.Sample }
