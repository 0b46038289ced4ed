package telemetry

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"xdsrelay/internal/xds"
)

// TypeMetrics has the metrics of one resource type; with Options.KeyLabel, of one type of one key.
type TypeMetrics struct {
	// Downstream.
	Responses   [variants]Counter // sent to clients, by Variant
	Bytes       [variants]Counter // of those responses, before compression
	Acks        Counter
	Nacks       Counter
	NotModified Counter   // REST requests that were answered without news (P71)
	LeftOut     Counter   // resources sent as JSON without fields that this program does not know
	Stale       Counter   // requests ignored by P12, and NACKs with unknown nonces (P13)
	Oversized   Counter   // responses over the size limit, not sent (P38)
	Coalesced   Counter   // changes that a client was not sent because a newer one replaced them
	Propagation Histogram // from the origin's response to a client's ACK

	// Heartbeats counts resources whose TTL was renewed for a client (P62). HeartbeatsCoalesced
	// counts renewals that a newer one replaced before they were sent.
	Heartbeats, HeartbeatsCoalesced Counter

	// Held resources.
	Dropped map[Drop]Counter // resources, by Drop

	// Upstream.
	Updates          map[Result]Counter          // responses of origins, by Result
	OriginHeartbeats map[HeartbeatResult]Counter // heartbeats of origins, by HeartbeatResult (P62)
	Failures         map[Failure]Counter         // resource_errors of origins, by Failure (P39)
	NotRequested     Counter                     // resources dropped because the relay does not request them (P65)
}

// typeLabels has the labels of the types in xds' table, then "other".
var (
	typeLabels = func() []string {
		var out []string
		for _, t := range xds.Types() {
			out = append(out, t.Label())
		}
		return append(out, xds.Type{}.Label())
	}()
	typeIndex = func() map[xds.TypeURL]int {
		out := make(map[xds.TypeURL]int)
		for i, t := range xds.Types() {
			out[t.URL] = i
		}
		return out
	}()
)

func indexOf(url xds.TypeURL) int {
	if i, ok := typeIndex[url]; ok {
		return i
	}
	return len(typeLabels) - 1
}

// Type returns the metrics of a type over all keys. With Options.KeyLabel they are for counts that
// belong to no key; without it every Key has the same metrics.
func (m *Metrics) Type(url xds.TypeURL) *TypeMetrics { return m.everyKey.Type(url) }

// Key has the metrics of one aggregation key.
type Key struct {
	m     *Metrics
	name  string
	types []atomic.Pointer[TypeMetrics] // by typeIndex, then "other"; made at the first use

	// Protected by Metrics.mu. At 0 the series are removed for good.
	uses int
}

func newKey(m *Metrics, name string) *Key {
	return &Key{m: m, name: name, types: make([]atomic.Pointer[TypeMetrics], len(typeLabels)), uses: 1}
}

// Key returns the metrics of a key. Release them when the key is dropped. Without Options.KeyLabel
// all keys share theirs. With it the number of series is keys × types × labels, bounded by
// limits.keys.
func (m *Metrics) Key(key xds.Key) *Key {
	if !m.keyLabel {
		return m.everyKey
	}
	name := key.String()
	m.mu.Lock()
	defer m.mu.Unlock()
	k, ok := m.keys[name]
	if !ok {
		k = newKey(m, name)
		m.keys[name] = k
		return k
	}
	k.uses++
	return k
}

// Type returns the metrics of a type of this key. After the last Release it returns those of no
// key.
func (k *Key) Type(url xds.TypeURL) *TypeMetrics {
	i := indexOf(url)
	if t := k.types[i].Load(); t != nil {
		return t
	}
	k.m.mu.Lock()
	defer k.m.mu.Unlock()
	if k.uses == 0 {
		k = k.m.everyKey
	}
	t := k.types[i].Load()
	if t == nil {
		t = k.m.makeType(i, k.name)
		k.types[i].Store(t)
	}
	return t
}

// Release ends one use of the key. The last one removes the key's series from the registry. Metrics
// that are still in use then count nothing.
func (k *Key) Release() {
	m := k.m
	if k == m.everyKey {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if k.uses == 0 {
		return
	}
	if k.uses--; k.uses > 0 {
		return
	}
	delete(m.keys, k.name)
	of := prometheus.Labels{"key": k.name}
	for _, vec := range m.perKey {
		vec.DeletePartialMatch(of)
	}
	m.propagation.DeletePartialMatch(of)
}

// makeType makes the metrics of a type and key. Its callers are New, and others with mu held.
func (m *Metrics) makeType(index int, key string) *TypeMetrics {
	label := typeLabels[index]
	with := func(more ...string) tags {
		t := tags{"type": label}
		if m.keyLabel {
			t["key"] = key
		}
		for i := 0; i < len(more); i += 2 {
			t[more[i]] = more[i+1]
		}
		return t
	}
	t := &TypeMetrics{
		Acks:         m.counter("downstream_acks_total", "Responses that clients acknowledged.", with()).summed(&m.acks),
		Nacks:        m.counter("downstream_nacks_total", "Responses that clients NACKed.", with()).summed(&m.nacks),
		NotModified:  m.counter("downstream_not_modified_total", "REST polls that were answered without a change (304).", with()),
		LeftOut:      m.counter("downstream_json_left_out_total", "Resources sent as JSON without fields that the relay does not know.", with()),
		Stale:        m.counter("downstream_stale_requests_total", "Requests that the relay did not answer because of an old or unknown nonce.", with()),
		Oversized:    m.counter("downstream_oversized_total", "Responses that were not sent because they are too large.", with()),
		Coalesced:    m.counter("coalesced_total", "Changes that a newer one replaced before they were sent to a client.", with()),
		Propagation:  Histogram{to: m.propagation.With(with())},
		NotRequested: m.counter("upstream_unasked_total", "Resources of origins that the relay dropped because it does not request them.", with()),
	}
	t.Heartbeats = m.counter("downstream_heartbeats_total", "Resources whose TTL was renewed for a client.", with())
	t.HeartbeatsCoalesced = m.counter("heartbeats_coalesced_total", "Renewals of a TTL that a newer one replaced before they were sent to a client.", with())
	t.Dropped = byLabel(m.counter, "dropped_resources_total", "Resources that the relay dropped although no origin removed them, by reason.", with(), "reason", drops)
	t.OriginHeartbeats = byLabel(m.counter, "upstream_heartbeats_total", "Heartbeats of origins, by result.", with(), "result", heartbeatResults)
	t.Failures = byLabel(m.counter, "upstream_resource_errors_total", "Errors of single resources (resource_errors) of origins, by result.", with(), "result", failures)
	t.Updates = byLabel(m.counter, "upstream_updates_total", "Responses of origins, by result.", with(), "result", results)
	for v := range variants {
		t.Responses[v] = m.counter("downstream_responses_total", "Responses sent to clients.", with("variant", v.String())).summed(&m.responses)
		t.Bytes[v] = m.counter("downstream_bytes_total", "Bytes of the responses sent to clients.", with("variant", v.String()))
	}
	return t
}
