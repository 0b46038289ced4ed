package tlsfiles

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"time"
)

const day = 24 * time.Hour

// thresholds are how long before its expiry a certificate is logged: the smaller of a fixed time and
// a fraction of its lifetime. Short-lived certificates are usually renewed when a half or two thirds
// of their lifetime are over. The last threshold is the expiry.
var thresholds = [...]struct {
	before  time.Duration
	divisor time.Duration // of the lifetime
}{{30 * day, 3}, {7 * day, 6}, {day, 12}, {0, 1}}

// Validity is when a certificate is valid.
type Validity struct {
	From time.Time `json:"from"`
	// Expires is when the first certificate of the chain expires. From then on the other side
	// rejects the chain.
	Expires time.Time `json:"expires"`
	// Lifetime is that of the certificate that expires first.
	Lifetime time.Duration `json:"-"`
	// Issuer is the subject of the issuer in the chain that expires before the certificate itself;
	// empty: none does.
	Issuer string `json:"issuer,omitempty"`
}

// Name is "certificate", or names the issuer that expires first.
func (v Validity) Name() string {
	if v.Issuer != "" {
		return "issuer " + v.Issuer
	}
	return "certificate"
}

// Expired reports whether the chain has expired.
func (v Validity) Expired(now time.Time) bool { return !now.Before(v.Expires) }

// Left returns how long the chain is still valid, for example "5 days" or "7h30m5s".
func (v Validity) Left(now time.Time) string {
	left := v.Expires.Sub(now)
	if left >= 2*day {
		return fmt.Sprintf("%d days", left/day)
	}
	return left.Round(time.Second).String()
}

// Soon reports whether the chain should have been renewed by now. Once it has expired, that is true
// too.
func (v Validity) Soon(now time.Time) bool {
	n, _ := v.reached(now)
	return n > 0
}

// reached returns how many thresholds are reached now, and when the next one is; zero: all are
// reached.
func (v Validity) reached(now time.Time) (n int, next time.Time) {
	for i, t := range thresholds {
		if at := v.Expires.Add(-min(t.before, v.Lifetime/t.divisor)); now.Before(at) {
			return i, at
		}
	}
	return len(thresholds), time.Time{}
}

func validityOf(c *tls.Certificate) Validity {
	v := Validity{From: c.Leaf.NotBefore, Expires: c.Leaf.NotAfter, Lifetime: c.Leaf.NotAfter.Sub(c.Leaf.NotBefore)}
	for _, der := range c.Certificate[1:] {
		if up, err := x509.ParseCertificate(der); err == nil && up.NotAfter.Before(v.Expires) {
			v.Expires, v.Lifetime, v.Issuer = up.NotAfter, up.NotAfter.Sub(up.NotBefore), up.Subject.String()
		}
	}
	return v
}

// ReadValidity reads the files and returns the validity of their certificate. ok is false if there
// is none, or if it cannot be read.
func ReadValidity(f Files) (v Validity, ok bool) {
	m, err := f.load()
	if err != nil || m.cert == nil {
		return v, false
	}
	return m.validity, true
}

// Validity returns the validity of the certificate in force. ok is false if there is none.
func (s *Source) Validity() (v Validity, ok bool) {
	m := s.inForce.Load()
	return m.validity, m.cert != nil
}

// logExpiry logs the certificate in force at each threshold, until ctx ends. A renewed certificate
// is logged again, if it has reached a threshold too.
func (s *Source) logExpiry(ctx context.Context) {
	if s.files.CertFile == "" {
		return
	}
	var of *material
	logged := 0 // thresholds of the certificate
	for {
		m, now := s.inForce.Load(), time.Now()
		n, next := m.validity.reached(now)
		if m != of {
			of, logged = m, 0
			if now.Before(m.validity.From) {
				s.opts.Log.Warn("certificate is not valid yet", "of", s.opts.Name, "from", m.validity.From)
			}
		}
		if n > logged {
			s.logThreshold(m.validity, now)
		}
		logged = n
		var due <-chan time.Time
		if !next.IsZero() {
			due = time.After(next.Sub(now))
		}
		select {
		case <-ctx.Done():
			return
		case <-s.renewed:
		case <-due:
		}
	}
}

func (s *Source) logThreshold(v Validity, now time.Time) {
	args := []any{"of", s.opts.Name, "expires", v.Expires}
	if v.Issuer != "" {
		args = append(args, "issuer", v.Issuer)
	}
	if v.Expired(now) {
		s.opts.Log.Error("certificate has expired", args...)
		return
	}
	s.opts.Log.Warn("certificate expires soon", append(args, "in", v.Left(now))...)
}
