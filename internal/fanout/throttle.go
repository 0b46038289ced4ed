package fanout

import (
	"time"

	"golang.org/x/time/rate"

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

// throttle delays a stream that sends too much of something. It belongs to the stream's receiver.
type throttle struct {
	limiter *rate.Limiter // nil: it was not needed yet
	count   int           // what was sent until then
	delayed bool          // it has delayed the stream
}

// throttleRequest is called after each request that is not just an ACK, with the weight of the names
// that it newly subscribed to. Above limits.requests_per_second or limits.names_per_second it waits,
// so that the relay reads the stream's next request later. It returns early if the stream ends.
// Receiver only.
func (st *stream) throttleRequest(newNames int) {
	limits := &st.srv.settings().Limits
	st.wait(&st.requests, 1, limits.RequestsPerSecond, burstSeconds*limits.RequestsPerSecond, telemetry.LimitRequestsPerSecond)
	burst := limits.NamesPerStream / 2
	if burst <= 0 {
		burst = burstSeconds * limits.NamesPerSecond
	}
	st.wait(&st.newNames, newNames, limits.NamesPerSecond, burst, telemetry.LimitNamesPerSecond)
}

// wait counts n, and waits while more was sent than the limit per second allows.
func (st *stream) wait(t *throttle, n, limit, burst int, reason telemetry.Reason) {
	if limit <= 0 || n <= 0 {
		return
	}
	if t.limiter == nil {
		if t.count += n; t.count <= unlimited {
			return
		}
		t.limiter = rate.NewLimiter(rate.Limit(limit), burst)
	}
	if t.limiter.Limit() != rate.Limit(limit) || t.limiter.Burst() != burst { // reloaded
		t.limiter.SetLimit(rate.Limit(limit))
		t.limiter.SetBurst(burst)
	}
	for ; n > 0; n -= burst {
		part := min(n, burst) // a limiter refuses more than its burst
		if t.limiter.AllowN(time.Now(), part) {
			continue
		}
		if !t.delayed {
			t.delayed = true
			st.srv.log.Warn("client stream delayed: more than downstream.limits."+reason.String()+" allows",
				append(st.client(st.node.ID).Attrs(), "limit", limit)...)
		}
		st.srv.metrics.Refuse(reason)
		if t.limiter.WaitN(st.grpc.Context(), part) != nil {
			return // the stream has ended
		}
	}
}
