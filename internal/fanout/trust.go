package fanout

import (
	"crypto/x509"
	"errors"
	"math/bits"
	"time"

	"google.golang.org/grpc/codes"

	"xdsrelay/internal/telemetry"
)

// A handshake proves who a client is by what was true then. A connection may be open
// for weeks: an authority that is withdrawn, or a certificate that expires, is to end
// it. So the certificates that a client has shown are held against the authorities in
// force, and the clock, at each stream that opens; and again, for streams that
// are open, when the authorities change and when the certificates expire. What they come to is kept
// with the pool that it was of: nothing is verified twice.
//
// The end is UNAVAILABLE, and the connection departs: the client may long have another
// certificate, and whether it has, the next handshake tells.

// trust is what a caller's certificates have come to.
type trust struct {
	roots *x509.CertPool // by which
	until time.Time      // they are valid
}

// roots are the gate's authorities in force.
func (g *Gate) roots() *x509.CertPool {
	switch {
	case g.Roots != nil:
		return g.Roots()
	case g.TLS != nil:
		return g.TLS.ClientCAs
	}
	return nil
}

// validUntil is how long the one of the chains is valid that is so for longest.
func validUntil(chains [][]*x509.Certificate) (until time.Time) {
	for _, chain := range chains {
		ends := chain[0].NotAfter
		for _, c := range chain[1:] {
			if c.NotAfter.Before(ends) {
				ends = c.NotAfter
			}
		}
		if ends.After(until) {
			until = ends
		}
	}
	return until
}

// provenBy says which authorities were in force before the caller's handshake. It was
// held against these, if they still are: otherwise it is held against the others.
func (c *Caller) provenBy(roots *x509.CertPool) {
	if c.verified {
		c.trust.Store(&trust{roots, c.trust.Load().until})
	}
}

// Trusted returns why the caller's certificates do not prove any more who it is; nil:
// they do, or it has shown none. Two streams that ask at once may both verify them.
func (c *Caller) Trusted(now time.Time) *Refusal {
	if !c.verified {
		return nil
	}
	roots := c.gate.roots()
	if t := c.trust.Load(); t.roots == roots && !now.After(t.until) {
		return nil
	}
	chains, err := verify(c.certs, roots, now)
	if err != nil {
		return Refuse(codes.Unavailable, telemetry.Certificate, "connection: the client's certificate does not hold any more: %w", err)
	}
	c.trust.Store(&trust{roots, validUntil(chains)})
	return nil
}

// verify is what a TLS server does with a client's certificates.
func verify(certs []*x509.Certificate, roots *x509.CertPool, now time.Time) ([][]*x509.Certificate, error) {
	if roots == nil {
		return nil, errors.New("no authority is trusted") // Verify would take the system's
	}
	between := x509.NewCertPool()
	for _, c := range certs[1:] {
		between.AddCert(c)
	}
	return certs[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// trusted holds the stream's client against the authorities, once others can see the
// stream: if they change after that, the mover looks at it.
func (st *stream) trusted() error {
	if refusal := st.caller.Trusted(time.Now()); refusal != nil {
		st.end(refusal)
		return refusal
	}
	st.expire()
	return nil
}

// expire has the stream be looked at when its client's certificates have expired:
// a part of drain later, so that of a fleet that shows one certificate not all are
// ended at once.
func (st *stream) expire() {
	if t := st.caller.trust.Load(); t != nil {
		later, _ := bits.Mul64(uint64(max(0, st.srv.settings().Drain)), st.id*0x9e3779b97f4a7c15)
		st.srv.ages.set(t.until.Add(time.Nanosecond+time.Duration(later)), &st.age, st)
	}
}

// outlive ends the stream if its client's certificates have expired. They may hold
// for longer: an authority's own certificate may have been renewed.
func (st *stream) outlive() {
	if refusal := st.caller.Trusted(time.Now()); refusal != nil {
		st.end(refusal)
		return
	}
	s := st.srv
	if !st.until.IsZero() {
		s.ages.set(st.until, &st.age, st)
	}
	st.expire()
	if !s.has(st) { // its alarm was dropped, maybe before
		s.ages.drop(&st.age)
	}
}
