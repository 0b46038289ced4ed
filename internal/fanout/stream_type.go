package fanout

import (
	"errors"
	"time"

	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/fanout/session"
	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// streamType is one type of one stream: its session, its subscriber, its metrics and its status.
// bit is its dirty bit.
type streamType struct {
	st              *stream
	bit             uint64
	subscriber      subscriber.Subscriber // nil: the type gets no response (P5, P6)
	states          subscriber.States     // of subscriber
	metrics         *telemetry.TypeMetrics
	session.Session // under the stream's lock, except where Subscribe says otherwise

	// Under the stream's lock.
	epoch uint64 // counts requests: a plan is not applied after a later one
	// unanswered counts the type while it gets no response (P3, P5, P6); nil: it is not counted.
	unanswered *telemetry.Gauge
	track      inspect.Tracker
	wakeTime   time.Time   // when the type is woken; zero: not set
	wakeTimer  *time.Timer // fires at wakeTime; nil: it was never set
	// marks are the snapshots of this type when a type that warms was sent last. The index is that
	// type's order (P19).
	marks [warmingTypes]snapshot.ID

	perKey *telemetry.Key // of metrics; nil: subscriber is nil
	node   *xds.Node      // as it was at the type's first request (P1)
	noKey  string         // the reason why subscriber is nil
}

// warmingTypes is one more than the order of the last type that warms.
const warmingTypes = 2

// joined gives the type its subscriber. The metrics are looked up once, and released when the
// subscriber has left. It is called before the type is added to the stream.
func (t *streamType) joined(sub subscriber.Subscriber) {
	t.subscriber, t.states = sub, sub.GroupStates()
	t.perKey = t.st.srv.metrics.Key(sub.Key())
	t.metrics = t.perKey.Type(t.Type.URL)
}

// uncounted are the metrics of types without a subscriber.
var uncounted telemetry.TypeMetrics

// leaveUnanswered refuses the type for this reason (P5, P6). The type gets no response, and the
// other types of its stream continue. It is called before the type is added to the stream.
func (t *streamType) leaveUnanswered(r telemetry.Reason, err error) {
	t.reportUnanswered(r, err)
	t.noKey, t.unanswered = string(r), t.st.srv.metrics.Unanswered(r)
}

func (t *streamType) reportUnanswered(r telemetry.Reason, err error) {
	srv := t.st.srv
	srv.metrics.Refuse(r)
	args := append(t.st.logClient(t.node.ID).Attrs(), "type", t.Type.URL, "reason", string(r), "error", err)
	if t.subscriber != nil {
		args = append(args, "key", t.subscriber.Key().String())
	}
	srv.log.Warn("client type refused; the stream gets no response for it", args...)
}

var errNoNames = errors.New("the origin's resources have no names, without which delta cannot send them")

// countNoNames counts the type while a delta client gets nothing of a snapshot, because the
// resources have no names (P3). It returns whether that begins. The stream's lock is held.
func (t *streamType) countNoNames(at *snapshot.Snapshot) (begins bool) {
	lacks := t.LacksNames(at)
	if lacks == (t.unanswered != nil) || t.subscriber == nil {
		return false
	}
	gauge := t.st.srv.metrics.Unanswered(telemetry.NoNames)
	if lacks {
		gauge.Add(1)
		t.unanswered = gauge
	} else {
		gauge.Add(-1)
		t.unanswered = nil
	}
	return lacks
}

// wakeAt wakes the type at that time (P19, P67). The stream's lock is held.
func (t *streamType) wakeAt(at time.Time) {
	t.wakeTime = at
	if t.wakeTimer == nil {
		t.wakeTimer = time.AfterFunc(time.Until(at), t.timerFired)
	} else {
		t.wakeTimer.Reset(time.Until(at))
	}
}

// timerFired is called at wakeTime.
func (t *streamType) timerFired() {
	t.st.mu.Lock()
	t.wakeTime = time.Time{}
	t.st.mu.Unlock()
	t.Wake()
}

// snapshot is the type's snapshot in the subscriber's State; nil: none.
func (t *streamType) snapshot() *snapshot.Snapshot {
	if t.states == nil {
		return nil
	}
	return t.states.State().Snapshot(t.Type.URL)
}
