package fleet

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"xdsrelay/internal/xds"
)

var errDetached = errors.New("the client left the stream")

// handle accepts or rejects a response. Only the reader calls it. So between its two critical
// sections only names are removed, and nothing else of a type changes.
func (c *Client) handle(s *stream, b []byte, received time.Time) error {
	f := scannedPool.Get().(*scannedResponse)
	defer f.release()
	scan := scanSotW
	if c.cfg.Variant == Delta {
		scan = scanDelta
	}
	if err := scan(b, f); err != nil {
		c.lock()
		c.violate(s, "", "unreadable response: %v", err)
		c.unlock()
		return fmt.Errorf("unreadable response: %w", err)
	}
	url := xds.TypeURL(f.typeURL)
	if c.cfg.OnResponse != nil {
		c.cfg.OnResponse(c, Response{Type: url, Version: f.version, Nonce: f.nonce, Identifier: f.identifier,
			Resources: len(f.items), Removed: len(f.removed), Size: f.size, Received: received, scannedResponse: f})
	}
	undecoded := c.hash(url, f)

	c.lock()
	if c.stream != s {
		c.unlock()
		return errDetached
	}
	s.answered = true
	fault := c.check(s, url, f)
	t := c.types[url]
	if t == nil || !t.requested {
		c.unlock() // a recorded violation; no type can answer it
		return nil
	}
	t.count.Responses++
	t.count.Bytes += uint64(f.size)
	nack, delay := c.nack, c.ackDelay
	c.unlock()

	if fault == nil {
		fault = undecoded
	}
	if fault == nil && nack != nil {
		fault = nack(url, copies(f))
	}

	c.lock()
	if c.stream != s {
		c.unlock()
		return errDetached
	}
	if fault == nil {
		if c.cfg.Variant == Delta {
			c.applyDelta(t, f)
		} else {
			c.applySotW(t, f)
		}
		t.version, t.answered = f.version, true
	}
	due := received
	if delay > 0 {
		due = time.Now().Add(delay)
	}
	t.replies = append(t.replies, reply{version: t.version, nonce: f.nonce, err: fault, due: due})
	if fault == nil {
		c.follow(t)
	}
	c.sendPending(t)
	c.unlock()

	if fault != nil {
		if c.cfg.OnNack != nil {
			c.cfg.OnNack(c, url, f.version, fault)
		}
	} else if c.cfg.OnApplied != nil {
		c.cfg.OnApplied(c, url, f.version, received)
	}
	return nil
}

// hash hashes the bodies, and decodes the references of types that are followed. With its error the
// client rejects the response.
func (c *Client) hash(url xds.TypeURL, f *scannedResponse) error {
	follows := c.cfg.Behaviour != Raw && decoders[url] != nil
	var fault error
	for i := range f.items {
		it := &f.items[i]
		if !it.hasBody {
			continue
		}
		it.hash = hashOf(it)
		if follows && fault == nil && string(it.typeURL) == string(url) {
			it.refs, fault = c.cfg.refs.get(url, it.hash, it.body)
		}
	}
	return fault
}

// copies returns the response's resources for Nack. It copies bodies, because the buffer goes
// back to the transport.
func copies(f *scannedResponse) []Resource {
	out := make([]Resource, 0, len(f.items))
	for i := range f.items {
		it := &f.items[i]
		r := Resource{Name: string(it.name), Version: f.version, Hash: it.hash, Body: bytes.Clone(it.body), TTL: it.ttl}
		if len(it.version) > 0 {
			r.Version = string(it.version)
		}
		for _, a := range it.aliases {
			r.Aliases = append(r.Aliases, string(a))
		}
		out = append(out, r)
	}
	return out
}

// applyItems applies the resources of a response.
func (c *Client) applyItems(t *typeState, f *scannedResponse) {
	t.gen++
	for i := range f.items {
		it := &f.items[i]
		if !t.covers(it) {
			t.count.Late++
			continue
		}
		if !it.hasBody {
			// A heartbeat. If no such resource is held, it is an alias that the server could not
			// resolve.
			if e := t.held[string(it.name)]; e != nil {
				e.TTL, e.gen = it.ttl, t.gen
				t.count.Heartbeats++
			}
			continue
		}
		before := t.held[string(it.name)]
		e, differs := t.put(it, f.version, c.cfg.DiscardBodies)
		switch {
		case t.url == xds.EndpointType:
			delete(c.warming, e.Name)
		case t.url == xds.ClusterType && differs:
			c.startWarming(before, e)
		}
	}
}

// sendPending sends the requests that follow from the last change of state: for types with changed
// names, then ACKs and NACKs. now is the type of the response that was just handled, or nil. Its
// changed names go with its ACK, unless that is withheld.
func (c *Client) sendPending(now *typeState) {
	if c.stream == nil {
		return
	}
	if c.cfg.Behaviour == Envoy && !c.started && c.types[xds.ClusterType].answered && len(c.warming) == 0 {
		c.started = true
		c.typ(xds.ListenerType).wantWildcard()
		c.send(c.typ(xds.ListenerType), nil)
	}
	for _, t := range c.order {
		if t != now && (t.stale || t.again) {
			c.send(t, nil)
		}
	}
	at := time.Now()
	for _, t := range c.order {
		c.flush(t, at)
	}
	if now != nil && (now.stale || now.again) {
		c.send(now, nil)
	}
}

// flush sends the ACKs and NACKs of a type that are due and not withheld. Of several SotW ACKs it
// sends only the newest, which includes the others.
func (c *Client) flush(t *typeState, at time.Time) {
	if c.holdAcks || t.holdAcks || c.acksWait(t) {
		return
	}
	n := 0
	for n < len(t.replies) && !t.replies[n].due.After(at) {
		n++
	}
	due := t.replies[:n]
	t.replies = t.replies[n:]
	for i := range due {
		if r := &due[i]; r.err != nil || c.cfg.Variant == Delta || i == n-1 {
			c.send(t, r)
		}
	}
	if len(t.replies) == 0 {
		t.replies = nil
		return
	}
	if c.ackTimer == nil {
		c.ackTimer = time.AfterFunc(t.replies[0].due.Sub(at), c.ackDue)
	}
}

func (c *Client) ackDue() {
	c.lock()
	defer c.unlock()
	c.ackTimer = nil
	c.sendPending(nil)
}

// send queues a request of a type: the stream's first, an answer to a response (r), or one with
// changed names only.
func (c *Client) send(t *typeState, r *reply) {
	s := c.stream
	var m proto.Message
	if c.cfg.Variant == Delta {
		m = c.deltaRequest(s, t, r)
	} else {
		m = c.sotwRequest(s, t, r)
	}
	s.node, t.requested = true, true
	t.stale, t.again, t.add, t.drop = false, false, nil, nil
	switch {
	case r == nil:
	case r.err != nil:
		t.count.Nacks++
	default:
		t.count.Acks++
	}
	c.enqueue(m)
}
