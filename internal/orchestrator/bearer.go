package orchestrator

import (
	"errors"
	"time"

	"google.golang.org/grpc/codes"

	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// errNoToken: an origin needs the token of a client, and no connected client of the key has a valid
// one.
var errNoToken = errors.New("no connected client of the key has a token that is valid now; a client that reconnects brings a new one")

// Bearer returns the node and the token for the key's next stream to an origin. Both are those of one
// connected client, which is the client whose token expires last. The node is as
// upstream.Client.NewSource needs it. Any goroutine may call it.
func (r *Registry) Bearer(key xds.Key) (node []byte, token string, err error) {
	r.mu.Lock()
	g := r.groups[key]
	r.mu.Unlock()
	if g == nil {
		return nil, "", errDropped
	}
	ct := g.bearer.Load()
	if !ct.bears(time.Now()) {
		return nil, "", errNoToken
	}
	n, err := r.representative(ct.node)
	if err != nil {
		return nil, "", err
	}
	return n.Bytes(), ct.client.Token.Text, nil
}

// bears reports whether the subscriber, which may be nil, has a valid token.
func (ct *clientType) bears(now time.Time) bool {
	return ct != nil && ct.client.Token != nil && now.Before(ct.client.Token.Expires)
}

// bearerJoined and bearerLeft keep the group's bearer up to date.
func (g *Group) bearerJoined(ct *clientType) {
	if at := g.bearer.Load(); g.opts.ByToken && ct.client.Token != nil && (at == nil || !at.known || at.client.Token.Expires.Before(ct.client.Token.Expires)) {
		g.bearer.Store(ct)
	}
}

func (g *Group) bearerLeft(ct *clientType) {
	if g.bearer.Load() != ct {
		return
	}
	g.bearer.Store(nil)
	for other := range g.subscribers {
		g.bearerJoined(other)
	}
}

// freshTokenEvery is how often a key ends a client's stream because it needs a new token.
const freshTokenEvery = 30 * time.Second

// demandToken ends the stream of one client if the key has no valid token and no open stream. The
// client returns, with a new token if its program has one.
func (g *Group) demandToken(now time.Time) {
	if !g.lacksToken(now) || now.Before(g.demandAt) {
		return
	}
	g.demandAt = now.Add(freshTokenEvery)
	for ct := range g.subscribers {
		if !ct.ended {
			ct.ended = true
			ct.client.End(refusal.New(codes.Unavailable, telemetry.TokenRenewal, "key %s: its origin needs a client's token, and all have expired", g.key))
			return
		}
	}
}

// lacksToken reports whether the key cannot open a stream, because all tokens have expired.
func (g *Group) lacksToken(now time.Time) bool {
	at := g.bearer.Load()
	return at != nil && !at.bears(now) && !g.connected()
}
