package listener

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/time/rate"

	"xdsrelay/config"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/telemetry"
)

const (
	// burstSeconds is how many seconds' worth of limits.requests_per_second a stream may send at
	// once. gRPC clients subscribe name by name when they connect.
	burstSeconds = 10
	// unlimited is how many requests, and how many new names, of a stream need no limiter, so that
	// an idle stream has none.
	unlimited = 100
)

// Throttle delays a stream that sends too many requests or new names. It belongs to the stream's
// receiver.
type Throttle struct {
	requests limiter // limits.requests_per_second: those that were not just ACKs
	newNames limiter // limits.names_per_second, by weight
}

// limiter limits one of them.
type limiter struct {
	rate    *rate.Limiter // nil: it was not needed yet
	count   int           // what was sent until then
	delayed bool          // it has delayed the stream
}

// Limiting is what a Throttle has to know of the stream that it delays.
type Limiting struct {
	Limits  *config.Limits
	Metrics *telemetry.Metrics
	Log     *slog.Logger
	Client  refusal.Client // for messages
}

// Wait is called after each request that is not just an ACK, with the weight of the names that it
// newly subscribed to. Above limits.requests_per_second or limits.names_per_second it waits, so that
// the relay reads the stream's next request later. It returns early if ctx, the stream's, ends.
func (t *Throttle) Wait(ctx context.Context, newNames int, l Limiting) {
	limits := l.Limits
	t.requests.wait(ctx, 1, limits.RequestsPerSecond, burstSeconds*limits.RequestsPerSecond, telemetry.LimitRequestsPerSecond, l)
	burst := limits.NamesPerStream / 2
	if burst <= 0 {
		burst = burstSeconds * limits.NamesPerSecond
	}
	t.newNames.wait(ctx, newNames, limits.NamesPerSecond, burst, telemetry.LimitNamesPerSecond, l)
}

// wait counts n, and waits while more was sent than the limit per second allows.
func (t *limiter) wait(ctx context.Context, n, limit, burst int, reason telemetry.Reason, l Limiting) {
	if limit <= 0 || n <= 0 {
		return
	}
	if t.rate == nil {
		if t.count += n; t.count <= unlimited {
			return
		}
		t.rate = rate.NewLimiter(rate.Limit(limit), burst)
	}
	if t.rate.Limit() != rate.Limit(limit) || t.rate.Burst() != burst { // reloaded
		t.rate.SetLimit(rate.Limit(limit))
		t.rate.SetBurst(burst)
	}
	for ; n > 0; n -= burst {
		part := min(n, burst) // a limiter refuses more than its burst
		if t.rate.AllowN(time.Now(), part) {
			continue
		}
		if !t.delayed {
			t.delayed = true
			l.Log.Warn("client stream delayed: more than downstream.limits."+string(reason)+" allows",
				append(l.Client.Attrs(), "limit", limit)...)
		}
		l.Metrics.Refuse(reason)
		if t.rate.WaitN(ctx, part) != nil {
			return // the stream has ended
		}
	}
}
