package session

import (
	"errors"
	"fmt"

	"xdsrelay/internal/xds"
)

// check fails the test if an invariant of the session does not hold. It runs after each step of the
// scripts, the tables and the model.
func (w *sessionFixture) check() {
	w.T.Helper()
	if err := w.s.check(); err != nil {
		w.T.Fatalf("invariant: %v", err)
	}
	if w.Cur == nil || !w.s.RemembersNoNACK() || w.s.clientVersions != nil {
		return
	}
	// What ComparisonCache remembers in a session changes no result. It leaves out removals of what the
	// client already had at first (P27): it would read all names of each such client.
	look := NewComparisonCache()
	if is, want := look.anyPending(w.s, w.Cur), w.s.Pending(w.Cur); is != want {
		w.T.Fatalf("unsent: %v, and %v by a comparison of all", is, want)
	}
}

// check returns the invariants that do not hold between two calls of a session's methods.
func (s *Session) check() error {
	var errs []error
	must := func(holds bool, format string, args ...any) {
		if !holds {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}

	// What the client requests is known, and interned values are never nil. Responses are made for the
	// newest request, unless that is stale (P12), which needs a pending ACK.
	must(s.sub.requested != nil && s.sub.effective != nil, "a subscription is nil")
	must(s.sub.requested == s.sub.effective || s.form.Variant == xds.SotW && s.pendingACKs.any(), "responses are made for another request than the newest, and no ACK is pending")
	must(s.sub.began || s.delivered.snapshot == nil && !s.pendingACKs.any(), "something was sent before the first request")

	// Pending ACKs are in the order of their nonces, and bounded. The parts of a response are
	// consecutive, and the last one ends it.
	whole, last := 0, uint64(0)
	for i, f := range s.pendingACKs.responses {
		must(f.seq > last, "nonce %d follows nonce %d", f.seq, last)
		must(!f.partFollows || i+1 < len(s.pendingACKs.responses) && s.pendingACKs.responses[i+1].snapshot == f.snapshot, "a part of a response is not followed by the next one")
		last = f.seq
		if !f.partFollows {
			whole++
		}
	}
	must(whole <= maxPendingACKs, "%d responses have no ACK", whole)

	// A change waits only for an ACK that is pending (P19).
	must(!s.pendingACKs.changeWaits || s.pendingACKs.any(), "a change waits although no ACK is pending")

	// Empty maps are nil. So inStep is a few comparisons, and a session in step holds no names.
	for name, empty := range map[string]bool{
		"forced.names":            s.forced.names != nil && len(s.forced.names) == 0,
		"forced.retried":          s.forced.retried != nil && len(s.forced.retried) == 0,
		"delivered.sentBeforeACK": s.delivered.sentBeforeACK != nil && len(s.delivered.sentBeforeACK) == 0,
		"delivered.errors":        s.delivered.errors != nil && len(s.delivered.errors) == 0,
		"nacks.list":              s.nacks.list != nil && len(s.nacks.list) == 0,
	} {
		must(!empty, "%s is empty and not nil", name)
	}

	// NACKs are bounded, and their names are sorted and unique, because they are searched by halves.
	must(len(s.nacks.list) <= maxPendingACKs, "%d NACKs are kept", len(s.nacks.list))
	for _, r := range s.nacks.list {
		must(sorted(r.names) && sorted(r.byAlias), "the names of a NACK are not sorted: %q %q", r.names, r.byAlias)
	}
	return errors.Join(errs...)
}

func sorted(names []string) bool {
	for i := range names {
		if i > 0 && names[i-1] >= names[i] {
			return false
		}
	}
	return true
}
