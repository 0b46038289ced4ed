package tracing

import (
	"context"
	"math/bits"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"xdsrelay/internal/telemetry/redact"
	"xdsrelay/internal/xds"
)

// Update is the trace of one response of an origin. A nil Update belongs to a response that is not
// traced.
type Update struct {
	tracer   *Tracer
	span     trace.Span
	ctx      context.Context // with the span, for its children
	received time.Time
	key      string
	typ      xds.TypeURL

	acks atomic.Uint64
}

// Begin begins the trace of a response that was read at received. Call it only if Sampled.
func (t *Tracer) Begin(received time.Time, a About) *Update {
	u := &Update{tracer: t, received: received, key: a.Key}
	u.ctx, u.span = t.spans().Start(context.Background(), "xds.update", trace.WithTimestamp(received), trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(text("xds.key", a.Key), text("xds.node", a.Node), text("xds.origin", a.Origin), attribute.String("xds.variant", a.Variant)))
	return u
}

// About describes a response's stream.
type About struct {
	Key string
	// Node is the id of the node that is sent upstream.
	Node    string
	Origin  string
	Variant string
}

// Response describes a response.
type Response struct {
	Type               xds.TypeURL
	Version, Nonce     string
	Resources, Removed int
}

// Read records the response and its check: fault is nil if it is accepted.
func (u *Update) Read(r Response, fault error) {
	if u == nil {
		return
	}
	u.typ = r.Type
	u.span.SetAttributes(text("xds.type", string(r.Type)), text("xds.version", r.Version), text("xds.nonce", r.Nonce),
		attribute.Int("xds.resources", r.Resources), attribute.Int("xds.removed", r.Removed))
	u.step("xds.update.check", u.received, fault)
}

// Handed records the size of the update that goes to the group.
func (u *Update) Handed(changed, removed int) {
	if u != nil {
		u.span.SetAttributes(attribute.Int("xds.handed.changed", changed), attribute.Int("xds.handed.removed", removed))
	}
}

// Applied records that the group made a new snapshot from it, beginning at since. From then on its
// ACKs can have spans.
func (u *Update) Applied(since time.Time) {
	if u == nil {
		return
	}
	u.step("xds.update.apply", since, nil)
	u.tracer.recent.add(u)
}

// Published ends the trace: the snapshot is published, and woken streams were woken.
func (u *Update) Published(since time.Time, state uint64, woken int) {
	if u == nil {
		return
	}
	u.step("xds.update.fanout", since, nil, attribute.Int("xds.woken", woken))
	u.span.SetAttributes(attribute.Int64("xds.generation", int64(state)), attribute.Int("xds.woken", woken))
	u.End("applied")
}

// End ends the trace with its result.
func (u *Update) End(result string) {
	if u == nil {
		return
	}
	u.span.SetAttributes(attribute.String("xds.result", result))
	u.span.End()
}

// Fail ends the trace of a rejected response.
func (u *Update) Fail(result string, err error) {
	if u == nil {
		return
	}
	if err != nil {
		u.span.SetStatus(codes.Error, short(err.Error()))
	}
	u.End(result)
}

func (u *Update) step(name string, since time.Time, err error, more ...attribute.KeyValue) {
	_, span := u.tracer.spans().Start(u.ctx, name, trace.WithTimestamp(since), trace.WithAttributes(more...))
	if err != nil {
		span.SetStatus(codes.Error, short(err.Error()))
	}
	span.End()
}

type contextKey struct{}

// With returns a context with the trace, for the receiver of the update.
func With(ctx context.Context, u *Update) context.Context {
	if u == nil {
		return ctx
	}
	return context.WithValue(ctx, contextKey{}, u)
}

// From returns the trace in a context; nil: none.
func From(ctx context.Context) *Update {
	u, _ := ctx.Value(contextKey{}).(*Update)
	return u
}

// maxText bounds an attribute's text, in bytes.
const maxText = 256

func text(name, said string) attribute.KeyValue { return attribute.String(name, short(said)) }

func short(said string) string {
	// Redact before cutting, because half a secret is not recognised.
	out := redact.Text(said[:min(len(said), 4*maxText)])
	return strings.ToValidUTF8(out[:min(len(out), maxText)], "\uFFFD")
}

// maxRecent bounds the updates with spans for ACKs: the newest ones. maxAcks bounds these spans for
// one update.
const (
	maxRecent = 64
	maxAcks   = 16
)

// recent has the updates with spans for ACKs, by the time they were received.
type recent struct {
	updates atomic.Pointer[map[int64]*Update] // the map is immutable; nil: none

	mu    sync.Mutex
	order []int64
}

func (r *recent) add(u *Update) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := u.received.UnixNano()
	r.order = append(r.order, at)
	if len(r.order) > maxRecent {
		r.order = r.order[1:]
	}
	next := make(map[int64]*Update, len(r.order))
	if old := r.updates.Load(); old != nil {
		for _, o := range r.order {
			if v := (*old)[o]; v != nil {
				next[o] = v
			}
		}
	}
	next[at] = u
	r.updates.Store(&next)
}

// Ack is a client's ACK of a response.
type Ack struct {
	Node    string
	Key     xds.Key
	Type    xds.TypeURL
	Version string
	Nonce   []byte
	// Received is when the origin's response came, At when the client answered.
	Received, At time.Time
}

// Acked makes a span for an ACK of a traced response, if its number is one with a span.
func (t *Tracer) Acked(a *Ack) {
	if t == nil {
		return
	}
	now := t.recent.updates.Load()
	if now == nil {
		return
	}
	u := (*now)[a.Received.UnixNano()]
	if u == nil || u.typ != a.Type {
		return
	}
	n := u.acks.Add(1)
	if bits.OnesCount64(n) != 1 || bits.Len64(n) > maxAcks || u.key != a.Key.String() {
		return
	}
	_, span := t.spans().Start(context.Background(), "xds.ack", trace.WithTimestamp(a.Received), trace.WithSpanKind(trace.SpanKindServer),
		trace.WithLinks(trace.Link{SpanContext: u.span.SpanContext()}),
		trace.WithAttributes(text("xds.key", u.key), text("xds.node", a.Node), text("xds.type", string(a.Type)), text("xds.version", a.Version),
			text("xds.nonce", string(a.Nonce)), attribute.Int64("xds.ack", int64(n))))
	span.End(trace.WithTimestamp(a.At))
}
