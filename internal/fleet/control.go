package fleet

import (
	"context"

	"xdsrelay/internal/xds"
)

// Leave ends Run.
func (c *Client) Leave() {
	c.lock()
	leave := c.leave
	c.unlock()
	leave()
}

// Reconnect ends the stream, if there is one, and opens another at once with this memory.
func (c *Client) Reconnect(memory Memory) {
	c.lock()
	s := c.stream
	c.stream, c.next = nil, memory
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

// SetNames replaces the names of a type, and sends the difference (in SotW, the list). Use it for Raw
// clients, and for types with names: other clients follow references, and replace it with the next one.
func (c *Client) SetNames(t xds.TypeURL, names ...string) {
	c.lock()
	defer c.unlock()
	s := c.typ(t)
	s.setNames(names...)
	if c.stream != nil {
		c.send(s, nil)
	}
}
