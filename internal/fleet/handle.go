package fleet

import (
	"cmp"
	"errors"
	"time"

	"google.golang.org/protobuf/proto"

	"xdsrelay/internal/xds"
)

var errDetached = errors.New("the client left the stream")

// handle accepts or rejects a response. Only the reader calls it. So between its two critical
// sections only names are removed, and nothing else of a type changes.
func (c *Client) handle(s *stream, f *response, received time.Time) error {
	url := xds.TypeURL(f.typeURL)
	if c.cfg.OnResponse != nil {
		c.cfg.OnResponse(c, Response{Type: url, Identifier: f.identifier,
			Resources: len(f.items), Removed: len(f.removed), response: f})
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
	c.unlock()

	if fault == nil {
		fault = undecoded
	}
	if fault == nil && c.cfg.Nack != nil {
		fault = c.cfg.Nack(url, resources(f))
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
	t.replies = append(t.replies, reply{version: t.version, nonce: f.nonce, err: fault})
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
func (c *Client) hash(url xds.TypeURL, f *response) error {
	follows := c.cfg.Behaviour != Raw && decoders[url] != nil
	var fault error
	for i := range f.items {
		it := &f.items[i]
		if !it.hasBody {
			continue
		}
		it.hash = hashOf(it)
		if follows && fault == nil && it.typeURL == string(url) {
			it.refs, fault = c.cfg.refs.get(url, it.hash, it.body)
		}
	}
	return fault
}

// resources returns the response's resources for Nack.
func resources(f *response) []Resource {
	out := make([]Resource, 0, len(f.items))
	for i := range f.items {
		it := &f.items[i]
		out = append(out, Resource{Name: it.name, Version: cmp.Or(it.version, f.version), Hash: it.hash, Body: it.body})
	}
	return out
}

func (c *Client) applyItems(t *typeState, f *response) {
	t.gen++
	for i := range f.items {
		it := &f.items[i]
		if !t.covers(it.name) {
			continue
		}
		if !it.hasBody { // a heartbeat
			if e := t.held[it.name]; e != nil {
				e.gen = t.gen
			}
			continue
		}
		before := t.held[it.name]
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
	for _, t := range c.order {
		if t != now && (t.stale || t.resend) {
			c.send(t, nil)
		}
	}
	for _, t := range c.order {
		c.flush(t)
	}
	if now != nil && (now.stale || now.resend) {
		c.send(now, nil)
	}
}

// flush sends the ACKs and NACKs of a type, unless they wait. Of several SotW ACKs it sends only the
// newest, which includes the others.
func (c *Client) flush(t *typeState) {
	if t.url == xds.ClusterType && len(c.warming) > 0 {
		return
	}
	for i := range t.replies {
		if r := &t.replies[i]; r.err != nil || c.cfg.Variant == Delta || i == len(t.replies)-1 {
			c.send(t, r)
		}
	}
	t.replies = nil
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
	t.stale, t.resend, t.add, t.drop = false, false, nil, nil
	switch {
	case r == nil:
	case r.err != nil:
		t.count.Nacks++
	default:
		t.count.Acks++
	}
	s.outbox = append(s.outbox, m)
}
