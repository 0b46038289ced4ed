package tlsfiles

import (
	"context"
	"crypto/x509"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/xdstest"
)

func TestThresholds(t *testing.T) {
	expires := time.Date(2026, 3, 31, 12, 0, 0, 0, time.UTC)
	before := func(d time.Duration) time.Time { return expires.Add(-d) }
	const hour = time.Hour
	for _, c := range []struct {
		lifetime, left time.Duration
		n              int
		next           time.Time // zero: none
	}{
		{365 * day, 365 * day, 0, before(30 * day)},
		{365 * day, 30*day + 1, 0, before(30 * day)},
		{365 * day, 30 * day, 1, before(7 * day)},
		{365 * day, 7*day + 1, 1, before(7 * day)},
		{365 * day, 7 * day, 2, before(day)},
		{365 * day, day, 3, expires},
		{365 * day, 1, 3, expires},
		{365 * day, 0, 4, time.Time{}},
		{365 * day, -365 * day, 4, time.Time{}},
		{90 * day, 31 * day, 0, before(30 * day)},
		{30 * day, 11 * day, 0, before(10 * day)},
		{30 * day, 10 * day, 1, before(5 * day)},
		{day, day, 0, before(8 * hour)},
		{day, 12 * hour, 0, before(8 * hour)}, // usually it is renewed now
		{day, 8 * hour, 1, before(4 * hour)},
		{day, 4 * hour, 2, before(2 * hour)},
		{day, 2 * hour, 3, expires},
		{day, 0, 4, time.Time{}},
	} {
		v := Validity{Expires: expires, Lifetime: c.lifetime}
		if n, next := v.reached(before(c.left)); n != c.n || !next.Equal(c.next) || v.Soon(before(c.left)) != (n > 0) {
			t.Errorf("%s of %s before the expiry: %d, and next at %s; want %d and %s", c.left, c.lifetime, n, next, c.n, c.next)
		}
	}
}

// A certificate is logged once at each threshold. Those that are passed at the start, or when it is
// renewed, are logged together.
func TestExpiryIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, dir := tlstest.NewAuthority(t), t.TempDir()
		var log xdstest.Log
		renew := func(left time.Duration, opts ...tlstest.Option) Files {
			cert, key := ca.Pair(t, append([]tlstest.Option{tlstest.ExpiresIn(left)}, opts...)...).Write(t, dir, "tls")
			return Files{CertFile: cert, KeyFile: key}
		}
		src := xdstest.Must(Open(renew(100*day), Options{Name: "downstream.tls", Log: log.Logger()}))(t)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { src.logExpiry(ctx) })
		const soon, over, early = `level=WARN msg="certificate expires soon" of=downstream.tls expires=`,
			`level=ERROR msg="certificate has expired" of=downstream.tls expires=`, `level=WARN msg="certificate is not valid yet" of=downstream.tls from=`
		after := func(d time.Duration, want ...string) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			var got []string
			for _, line := range log.Take() {
				if _, line, _ = strings.Cut(line, " "); !strings.Contains(line, "certificates reloaded") {
					got = append(got, line)
				}
			}
			if len(got) != len(want) {
				t.Fatalf("logged %q, want %q", got, want)
			}
			for i := range want {
				if !strings.HasPrefix(got[i], want[i]) {
					t.Errorf("logged %q, want %q", got[i], want[i])
				}
			}
		}
		after(70*day - time.Second)
		after(time.Second, soon)
		after(23*day - time.Second)
		after(time.Second, soon)
		after(6*day, soon)
		after(day - time.Second)
		after(time.Second, over)
		after(1000 * day)

		renew(8 * day)
		src.Reload()
		after(0, soon)
		src.Reload() // the same files
		after(day, soon)
		renew(-time.Minute)
		src.Reload()
		after(0, over)
		renew(100*day, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) })
		src.Reload()
		after(0, early)
		after(70*day, soon)
		renew(100 * day)
		src.Reload()
		after(0)
		renew(0, tlstest.Expiring(day, day))
		src.Reload()
		after(12 * time.Hour)
		renew(0, tlstest.Expiring(day, day)) // at half of its lifetime
		src.Reload()
		after(16*time.Hour - time.Second)
		after(time.Second, soon) // it was not renewed
		stop()
		running.Wait()
	})
}

// A Source without a certificate has no expiry.
func TestNoExpiryWithoutACertificate(t *testing.T) {
	dir := t.TempDir()
	src := xdstest.Must(Open(Files{CAFile: tlstest.File(t, dir, "ca", tlstest.NewAuthority(t).PEM())}, Options{Log: slog.New(slog.DiscardHandler)}))(t)
	if v, ok := src.Validity(); ok {
		t.Errorf("%+v", v)
	}
	src.logExpiry(t.Context()) // returns at once
}
