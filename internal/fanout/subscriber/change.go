package subscriber

import (
	"errors"

	"google.golang.org/grpc/codes"

	"xdsrelay/internal/expr"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// KeyOf says which key a client has for a type: by the rules in force, or by others.
type KeyOf func(node *xds.Node, peer expr.Peer, typ xds.TypeURL) (xds.Key, error)

// Change is the key that one type of a client has, and the one that it would have by other rules.
type Change struct {
	Type xds.TypeURL
	// From and To are the keys now and then; the zero Key: none.
	From, To xds.Key
	// Refused is why the type would have none.
	Refused error
}

// Apply sets To or Refused by these rules.
func (c *Change) Apply(keyOf KeyOf, node *xds.Node, peer expr.Peer) {
	if key, err := keyOf(node, peer, c.Type); err != nil {
		c.Refused = err
	} else {
		c.To = key
	}
}

// KeyChanged is the refusal that ends a client with this change; what is "stream" or "poll".
func (c *Change) KeyChanged(what string) *refusal.Refusal {
	to := "none"
	if !c.To.IsZero() {
		to = c.To.String()
	}
	return refusal.New(codes.Unavailable, telemetry.KeyChanged, "%s: the rules changed: the key for %s is now %s", what, c.Type, to)
}

// AsRefusal returns err as the refusal of a client that has no key.
func AsRefusal(err error) *refusal.Refusal {
	var r *refusal.Refusal
	if errors.As(err, &r) {
		return r
	}
	return refusal.New(codes.PermissionDenied, telemetry.Unmapped, "%w", err)
}
