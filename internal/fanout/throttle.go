package fanout

import (
	"golang.org/x/time/rate"

	"xdsrelay/internal/telemetry"
)

const (
	// burstSeconds is how many seconds' worth of limits.requests_per_second a stream may send at
	// once. gRPC clients subscribe name by name when they connect.
	burstSeconds = 10
	// unlimitedRequests is how many requests of a stream need no limiter, so that an idle
	// stream has none.
	unlimitedRequests = 100
)

// throttle is called after each request that is not just an ACK. Above
// limits.requests_per_second it waits, so that the relay reads the stream's next request
// later. It returns early if the stream ends. Receiver only.
func (st *stream) throttle() {
	limit := st.srv.settings().Limits.RequestsPerSecond
	if st.requestCount++; limit <= 0 || st.requestCount <= unlimitedRequests {
		return
	}
	if st.limiter == nil {
		st.limiter = rate.NewLimiter(rate.Limit(limit), burstSeconds*limit)
	}
	if st.limiter.Limit() != rate.Limit(limit) { // reloaded
		st.limiter.SetLimit(rate.Limit(limit))
		st.limiter.SetBurst(burstSeconds * limit)
	}
	if st.limiter.Allow() {
		return
	}
	if !st.throttled {
		st.throttled = true
		st.srv.log.Warn("client stream delayed: more requests than downstream.limits.requests_per_second allows",
			append(st.client(st.node.ID).Attrs(), "limit", limit)...)
	}
	st.srv.metrics.Refuse(telemetry.LimitRequestsPerSecond)
	_ = st.limiter.Wait(st.grpc.Context()) // it fails if the stream ends
}
