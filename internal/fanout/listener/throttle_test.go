package listener

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"xdsrelay/config"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xdstest"
)

// Above requests_per_second, and a burst of ten seconds' worth, the next request of a stream is read
// later. A limit that is changed holds for streams that are open.
func TestRequestsAreThrottled(t *testing.T) {
	metrics := xdstest.Must(telemetry.New(telemetry.Options{Prefix: "xdsrelay"}))(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var throttle Throttle
		limits := &config.Limits{RequestsPerSecond: 100}
		took := func(n int) time.Duration {
			began := time.Now()
			for range n {
				throttle.Wait(ctx, 0, Limiting{Limits: limits, Metrics: metrics, Log: slog.New(slog.DiscardHandler)})
			}
			return time.Since(began).Round(10 * time.Millisecond)
		}
		if took(unlimited); throttle.requests.rate != nil {
			t.Error("a stream with few requests has a limiter")
		}
		if d := took(100 * burstSeconds); d != 0 {
			t.Errorf("the burst took %v", d)
		}
		if d := took(200); d != 2*time.Second {
			t.Errorf("200 requests took %v", d)
		}
		limits.RequestsPerSecond = 1000
		took(1) // from what the old limit left
		if d := took(1000); d != time.Second {
			t.Errorf("1000 requests took %v under the new limit", d)
		}
		cancel()
		if d := took(1000); d != 0 {
			t.Errorf("a stream that has ended was held for %v", d)
		}
		limits.RequestsPerSecond = 0
		if d := took(100_000); d != 0 {
			t.Errorf("without a limit it took %v", d)
		}
	})
}
