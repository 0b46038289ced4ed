package otlptest

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Collector is an OTLP receiver over HTTP. Address is its URL.
type Collector struct {
	Address string

	mu       sync.Mutex
	spans    []*tracev1.Span
	resource map[string]string // attributes of the sender of the last spans
	headers  http.Header
	refuse   bool
	grown    chan struct{} // closed at the next span
}

// New starts a collector that ends with the test.
func New(t testing.TB) *Collector {
	t.Helper()
	c := &Collector{grown: make(chan struct{})}
	server := httptest.NewServer(c)
	c.Address = server.URL
	t.Cleanup(server.Close)
	return c
}

// Refuse makes the collector refuse all spans from now on.
func (c *Collector) Refuse() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse = true
}

// ServeHTTP implements http.Handler.
func (c *Collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refuse {
		http.Error(w, "not you", http.StatusForbidden)
		return
	}
	var request collectorv1.ExportTraceServiceRequest
	body, err := io.ReadAll(r.Body)
	if err = errors.Join(err, proto.Unmarshal(body, &request)); err != nil || r.URL.Path != "/v1/traces" {
		http.Error(w, fmt.Sprint(r.URL.Path, err), http.StatusBadRequest)
		return
	}
	c.headers = r.Header
	for _, rs := range request.ResourceSpans {
		c.resource = make(map[string]string)
		for _, kv := range rs.GetResource().GetAttributes() {
			c.resource[kv.Key] = kv.GetValue().GetStringValue()
		}
		for _, ss := range rs.ScopeSpans {
			c.spans = append(c.spans, ss.Spans...)
		}
	}
	close(c.grown)
	c.grown = make(chan struct{})
}

// Headers returns the headers of the last request.
func (c *Collector) Headers() http.Header {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.headers
}

// Resource returns the attributes of the sender of the last spans.
func (c *Collector) Resource() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resource
}

// Spans returns the received spans with this name; all if it is empty.
func (c *Collector) Spans(name string) []*tracev1.Span {
	out, _ := c.named(name)
	return out
}

func (c *Collector) named(name string) (out []*tracev1.Span, grown <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if name == "" || s.Name == name {
			out = append(out, s)
		}
	}
	return out, c.grown
}

// Await waits until at least n spans with this name came, and returns them.
func (c *Collector) Await(t testing.TB, name string, n int) []*tracev1.Span {
	t.Helper()
	late := time.After(30 * time.Second)
	for {
		got, grown := c.named(name)
		if len(got) >= n {
			return got
		}
		select {
		case <-grown:
		case <-late:
			t.Fatalf("%d spans %s came, not %d", len(got), name, n)
		}
	}
}

// Attributes returns a span's attributes: strings and int64.
func Attributes(s *tracev1.Span) map[string]any {
	out := make(map[string]any)
	for _, kv := range s.Attributes {
		switch v := kv.GetValue(); {
		case v.GetStringValue() != "":
			out[kv.Key] = v.GetStringValue()
		default:
			out[kv.Key] = v.GetIntValue()
		}
	}
	return out
}
