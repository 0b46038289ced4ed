package fleet

import (
	"context"
	"errors"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"xdsrelay/internal/xds"
)

// Stall stops the client from reading, until Resume. What the server sent is
// then in the transport's windows; one response may already be in the reader's
// hand, and is not taken or answered before Resume. A stalled client does not
// see that the server ended its stream.
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

// HoldAcks withholds the ACKs and NACKs of these types, of all if none is
// named. Responses are taken meanwhile.
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

// ReleaseAcks ends HoldAcks for these types, for all if none is named, and
// sends what was withheld: in incremental each ACK, in SotW each NACK and the
// newest ACK.
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
	c.settle(nil)
}

// SetAckDelay delays the ACKs and NACKs of the responses to come.
func (c *Client) SetAckDelay(d time.Duration) {
	c.lock()
	defer c.unlock()
	c.ackDelay = d
}

// SetRefuse replaces ClientConfig.Refuse; nil: nothing is refused.
func (c *Client) SetRefuse(refuse func(t xds.TypeURL, resources []Resource) error) {
	c.lock()
	defer c.unlock()
	c.refuse = refuse
}

// Disconnect ends the stream, and the client stays away until Reconnect. The
// connection stays open.
func (c *Client) Disconnect() { c.detach(true, nil) }

// Reconnect ends the stream, if there is one, and opens another at once, with
// what memory says of the client.
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

// Subscribe asks for more names of a type; "*" is the wildcard, and no names
// at all on a type not asked for yet is the legacy wildcard. In incremental the
// names are sent also if the client asks for them already. For Raw clients;
// others follow references, and take it back with the next one.
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
	if s.spoken {
		s.add = slices.Clone(names)
		for _, n := range names {
			delete(s.absent, n)
		}
	}
	c.send(s, nil)
}

// Unsubscribe asks for fewer names of a type; "*" is the wildcard. In
// incremental names are sent also if the client does not ask for them.
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
	if c.stream != nil && s.spoken {
		s.drop = slices.Clone(names)
		c.send(s, nil)
	}
}

// SetNames makes what the client asks for of a type exactly these names, and
// sends the difference (in SotW, the list). No names: nothing more is asked
// for; as the first request of a type, the legacy wildcard.
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

// Send sends any message as it is, after what waits to be sent: for tests of
// what no real client would send. The client does not take note of it.
func (c *Client) Send(m proto.Message) error {
	c.lock()
	defer c.unlock()
	if c.stream == nil {
		return errors.New("client: no stream")
	}
	c.post(m)
	return nil
}

// wantWildcard asks for the legacy wildcard; for the types that have none, for
// nothing.
func (t *typeState) wantWildcard() {
	t.active = true
	t.legacy = !t.noLegacy
}

// wildcard turns the wildcard on, by "*", or off.
func (t *typeState) wildcard(on bool) {
	if !on {
		t.wasWild = t.wasWild || t.spoken && t.wild()
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
		t.wasWild = t.wasWild || t.spoken
		t.prune()
	}
}

// replace makes the names these, and returns the difference in plain names.
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
