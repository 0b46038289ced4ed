package ownership

import (
	"sync"

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
	j.table.serve(info.Key, 1)
	c := &client{Client: j.Joiner.Join(info)}
	c.left = sync.OnceFunc(func() { j.table.serve(info.Key, -1) })
	return c
}

// client is a member that joined.
type client struct {
	subscriber.Client
	left func()
}

// Leave implements subscriber.Client.
func (c *client) Leave() {
	c.Client.Leave()
	c.left()
}

// serve counts the streams of members for a key.
func (t *Table) serve(key xds.Key, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.served[key]
	if t.served[key] += n; t.served[key] == 0 {
		delete(t.served, key)
	}
	if watch := t.watching[key]; watch != nil && (was == 0) != (was+n == 0) {
		close(watch)
		delete(t.watching, key)
	}
}
