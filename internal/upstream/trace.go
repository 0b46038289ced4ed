package upstream

import (
	"time"

	"xdsrelay/internal/telemetry/tracing"
	"xdsrelay/internal/xds"
)

// trace begins the trace of a response that was read at this time; nil for most,
// which are not traced.
func (l *line) trace(received time.Time) *tracing.Update {
	t := l.client.opts.Tracer
	if l.probing != nil || !t.Sampled() {
		return nil
	}
	about := tracing.About{Key: l.id, Node: xds.NodeIDOf(l.node), Origin: l.at.name, Variant: l.client.opts.Variant.String()}
	return t.Begin(received, about)
}

// traceRead says what was read.
func traceRead(t *tracing.Update, r *xds.Response, fault error) {
	if t != nil {
		t.Read(tracing.Response{
			Type: r.TypeURL, Version: r.Version, Nonce: r.Nonce, Resources: len(r.Resources), Removed: len(r.Removed),
		}, fault)
	}
}

// traceEnd ends the trace of what the group did not make a snapshot of. One of
// which it did is the group's to end.
func (l *line) traceEnd(t *tracing.Update, changed bool) {
	if !changed {
		t.End("unchanged")
	}
}
