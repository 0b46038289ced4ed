package ownership

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// The headers of a member's stream: its key, as xds.Key.String, and the member's compat.
const (
	keyHeader    = "x-xdsrelay-key-bin"
	compatHeader = "x-xdsrelay-compat"
)

// RelayKey is for fanout.Options.RelayKey. It refuses members of another compat, whose rules may give
// the key another meaning.
func (t *Table) RelayKey(md metadata.MD) (xds.Key, *refusal.Refusal) {
	one := func(header string) string {
		if v := md.Get(header); len(v) == 1 {
			return v[0]
		}
		return ""
	}
	if theirs, ours := one(compatHeader), t.opts.Compat(); theirs != ours {
		return xds.Key{}, refusal.New(codes.FailedPrecondition, telemetry.Compat,
			"stream: the member has compat %q, and this relay %q: their configurations differ", theirs, ours)
	}
	key, ok := xds.ParseKey(one(keyHeader))
	if !ok {
		return xds.Key{}, refusal.New(codes.InvalidArgument, telemetry.RequestInvalid, "stream: header %s is no key", keyHeader)
	}
	return key, nil
}

// Joiner returns j for the server of members. Keys that a member subscribes to are served: see
// Origins.
func (t *Table) Joiner(j subscriber.Joiner) subscriber.Joiner { return &joiner{j, t} }

type joiner struct {
	subscriber.Joiner
	table *Table
}

// Join implements subscriber.Joiner.
func (j *joiner) Join(info subscriber.Info) subscriber.Client {
	return &client{Client: j.Joiner.Join(info), key: info.Key, table: j.table}
}

// client is a member that joined. Its receiver calls the methods.
type client struct {
	subscriber.Client
	key    xds.Key
	table  *Table
	served int // types
}

// Subscribe implements subscriber.Client. The key counts as served before, so that a new key's first
// source is an origin. If the member is refused, no other source of the key learns of that.
func (c *client) Subscribe(typ xds.TypeURL, w subscriber.Waker) (subscriber.Subscriber, error) {
	c.table.serve(c.key, 1)
	s, err := c.Client.Subscribe(typ, w)
	if err != nil {
		c.table.serve(c.key, -1)
		return nil, err
	}
	if c.served++; c.served == 1 {
		c.table.announceKey(c.key)
	}
	return s, nil
}

// Leave implements subscriber.Client.
func (c *client) Leave() {
	c.Client.Leave()
	if c.served > 0 {
		c.table.serve(c.key, -c.served)
		c.table.announceKey(c.key)
		c.served = 0
	}
}

// serve counts the types of members for a key.
func (t *Table) serve(key xds.Key, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.served[key] += n; t.served[key] == 0 {
		delete(t.served, key)
	}
}

// announceKey closes the channel of a key.
func (t *Table) announceKey(key xds.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if watch := t.watching[key]; watch != nil {
		close(watch)
		delete(t.watching, key)
	}
}
