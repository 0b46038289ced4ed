package fleet

import (
	"context"
	"errors"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"xdsrelay/internal/xds"
)

// Stall stops reading until Resume. The server's responses then wait in the transport's windows.
// The reader may have one response already; it neither applies nor answers it before Resume. A
// stalled client does not notice that the server ended its stream.
func (c *Client) Stall() {
	c.lock()
	defer c.unlock()
	if c.stalled == nil {
		c.stalled = make(chan struct{})
	}
}

// Resume ends Stall.
func (c *Client) Resume() {
	c.lock()
	stalled := c.stalled
	c.stalled = nil
	c.unlock()
	if stalled != nil {
		close(stalled)
	}
}

// HoldAcks withholds the ACKs and NACKs of these types, or of all types if none is given. Responses
// are still applied.
func (c *Client) HoldAcks(types ...xds.TypeURL) {
	c.lock()
	defer c.unlock()
	if len(types) == 0 {
		c.holdAcks = true
	}
	for _, t := range types {
		c.typ(t).holdAcks = true
	}
}

// ReleaseAcks ends HoldAcks for these types, or for all if none is given. It sends what was
// withheld: in delta each ACK, in SotW each NACK and the newest ACK.
func (c *Client) ReleaseAcks(types ...xds.TypeURL) {
	c.lock()
	defer c.unlock()
	if len(types) == 0 {
		c.holdAcks = false
		for _, t := range c.order {
			t.holdAcks = false
		}
	}
	for _, t := range types {
		c.typ(t).holdAcks = false
	}
	c.sendPending(nil)
}

// SetAckDelay delays the ACKs and NACKs of later responses.
func (c *Client) SetAckDelay(d time.Duration) {
	c.lock()
	defer c.unlock()
	c.ackDelay = d
}

// SetNack replaces ClientConfig.Nack; nil: the client rejects nothing by itself.
func (c *Client) SetNack(nack func(t xds.TypeURL, resources []Resource) error) {
	c.lock()
	defer c.unlock()
	c.nack = nack
}

// Disconnect ends the stream, and opens none until Reconnect. The connection stays open.
func (c *Client) Disconnect() { c.detach(true, nil) }

// Reconnect ends the stream, if there is one, and opens another at once with this memory.
func (c *Client) Reconnect(memory Memory) { c.detach(false, &memory) }

func (c *Client) detach(offline bool, next *Memory) {
	c.lock()
	s := c.stream
	c.stream = nil
	c.offline = offline
	if next != nil {
		c.next = *next
	}
	if s != nil {
		c.lastErr = context.Canceled
	}
	c.unlock()
	if s != nil {
		s.cancel()
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Subscribe adds names of a type. "*" is the wildcard; no names for a type without a request is the
// legacy wildcard. In delta it sends the names even if they are subscribed. Use it for Raw clients:
// others follow references, and replace it with the next one.
func (c *Client) Subscribe(t xds.TypeURL, names ...string) {
	c.lock()
	defer c.unlock()
	s := c.typ(t)
	if len(names) == 0 {
		if !s.active {
			s.wantWildcard()
		}
	} else {
		s.active = true
		s.subscribe(c.cfg.Variant, names)
	}
	if c.stream == nil {
		return
	}
	if s.requested {
		s.add = slices.Clone(names)
		for _, n := range names {
			delete(s.absent, n)
		}
	}
	c.send(s, nil)
}

// Unsubscribe removes names of a type; "*" is the wildcard. In delta it sends the names even if
// they are not subscribed.
func (c *Client) Unsubscribe(t xds.TypeURL, names ...string) {
	c.lock()
	defer c.unlock()
	s := c.typ(t)
	for _, n := range names {
		if n == "*" {
			s.wildcard(false)
		} else {
			s.unwant(n)
		}
	}
	s.prune()
	if c.stream != nil && s.requested {
		s.drop = slices.Clone(names)
		c.send(s, nil)
	}
}

// SetNames replaces the subscription to a type by these names, and sends the difference (in SotW,
// the list). Without names it subscribes to nothing; as the first request of a type, to the legacy
// wildcard.
func (c *Client) SetNames(t xds.TypeURL, names ...string) {
	c.lock()
	defer c.unlock()
	s := c.typ(t)
	star := slices.Contains(names, "*")
	wasStar, wasWild := s.star, s.wild()
	add, drop := s.replace(names)
	if star && !wasStar {
		add = append(add, "*")
	}
	if wasWild && !s.wild() {
		drop = append(drop, "*")
	}
	s.prune()
	if c.stream != nil {
		s.add, s.drop = add, drop
		c.send(s, nil)
	}
}

// Send sends any message unchanged, after the waiting requests. It is for tests of messages that no
// real client sends. The client's state does not change.
func (c *Client) Send(m proto.Message) error {
	c.lock()
	defer c.unlock()
	if c.stream == nil {
		return errors.New("client: no stream")
	}
	c.enqueue(m)
	return nil
}

// wantWildcard subscribes to the legacy wildcard; for types without one, to nothing.
func (t *typeState) wantWildcard() {
	t.active = true
	t.legacy = !t.noLegacy
}

// wildcard subscribes to "*", or ends any wildcard.
func (t *typeState) wildcard(on bool) {
	if !on {
		t.wasWild = t.wasWild || t.requested && t.wild()
		t.legacy = false
	}
	t.star = on
	t.list = nil
}

// subscribe adds names. In SotW a list with names ends the legacy wildcard.
func (t *typeState) subscribe(v Variant, names []string) {
	for _, n := range names {
		if n == "*" {
			t.wildcard(true)
		} else {
			t.want(n)
		}
	}
	if v == SotW && t.legacy {
		t.legacy = false
		t.wasWild = t.wasWild || t.requested
		t.prune()
	}
}

// replace sets the names, and returns the difference without "*".
func (t *typeState) replace(names []string) (add, drop []string) {
	if len(names) == 0 && !t.active {
		t.wantWildcard()
		return nil, nil
	}
	t.active = true
	for n := range t.names {
		if !slices.Contains(names, n) {
			t.unwant(n)
			drop = append(drop, n)
		}
	}
	star := false
	for _, n := range names {
		if n == "*" {
			star = true
		} else if t.want(n) {
			add = append(add, n)
		}
	}
	if star != t.wild() || t.legacy {
		t.wildcard(star)
	}
	return add, drop
}
