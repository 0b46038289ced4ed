package tracing

import (
	"context"
	"log/slog"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"xdsrelay/internal/telemetry"
)

// queue holds spans until they are sent. The SDK's batcher would start its goroutine when it is
// made, drop spans silently, and not end while a collector blocks it.
type queue struct {
	metrics *telemetry.Metrics
	log     *slog.Logger
	waiting chan sdktrace.ReadOnlySpan

	failures failures // run's
}

func newQueue(m *telemetry.Metrics, log *slog.Logger) *queue {
	return &queue{metrics: m, log: log, waiting: make(chan sdktrace.ReadOnlySpan, maxQueued)}
}

// OnStart implements sdktrace.SpanProcessor.
func (q *queue) OnStart(context.Context, sdktrace.ReadWriteSpan) {}

// OnEnd implements sdktrace.SpanProcessor. It queues a span if there is room.
func (q *queue) OnEnd(s sdktrace.ReadOnlySpan) {
	select {
	case q.waiting <- s:
	default:
		q.metrics.Spans(telemetry.SpanNoRoom, 1)
	}
}

// ForceFlush implements sdktrace.SpanProcessor; run flushes.
func (q *queue) ForceFlush(context.Context) error { return nil }

// Shutdown implements sdktrace.SpanProcessor; run ends with its context.
func (q *queue) Shutdown(context.Context) error { return nil }

// run sends until ctx ends, and then the rest for at most flushFor.
func (q *queue) run(ctx context.Context, to sdktrace.SpanExporter) {
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(flushFor, cancel) })()
	tick := time.NewTicker(sendEvery)
	defer tick.Stop()
	var batch []sdktrace.ReadOnlySpan
	send := func() {
		if len(batch) > 0 {
			q.send(sending, to, batch)
			clear(batch)
			batch = batch[:0]
		}
	}
	for over := false; !over; {
		select {
		case s := <-q.waiting:
			if batch = append(batch, s); len(batch) == maxBatch {
				send()
			}
		case <-tick.C:
			send()
		case <-ctx.Done():
			over = true
		}
	}
	for left := true; left; {
		select {
		case s := <-q.waiting:
			if batch = append(batch, s); len(batch) == maxBatch {
				send()
			}
		default:
			left = false
		}
	}
	send()
}

func (q *queue) send(ctx context.Context, to sdktrace.SpanExporter, batch []sdktrace.ReadOnlySpan) {
	err := to.ExportSpans(ctx, batch)
	if err == nil {
		q.metrics.Spans(telemetry.SpanSent, len(batch))
		return
	}
	q.metrics.Spans(telemetry.SpanFailed, len(batch))
	if lost, tell := q.failures.add(len(batch), time.Now()); tell {
		q.log.Warn("traces cannot be sent", "spans_lost", lost, "error", err)
	}
}

// warnEvery is the least time between two log lines about failures.
const warnEvery = time.Minute

// failures counts lost spans since the last log line.
type failures struct {
	lost int
	told time.Time
}

// add counts lost spans. It reports whether to log them, and their number since the last line.
func (f *failures) add(n int, now time.Time) (lost int, tell bool) {
	f.lost += n
	if !f.told.IsZero() && now.Sub(f.told) < warnEvery {
		return 0, false
	}
	lost, f.lost, f.told = f.lost, 0, now
	return lost, true
}
