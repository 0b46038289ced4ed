package ownership

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc/metadata"

	"xdsrelay/internal/cluster"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
)

// memberID identifies one start of a member. A member that returns with another address is another
// origin.
type memberID struct{ name, address string }

func idOf(m *cluster.Member) memberID { return memberID{m.Name, m.Address} }

// removeEvery is how often members that are gone are removed, once no stream uses them.
const removeEvery = 10 * time.Second

// domain has the members, which make the same versions from the content (P55, P61).
const domain = "members"

// Run keeps an origin for each member until ctx ends.
func (t *Table) Run(ctx context.Context, client *upstream.Client, log *slog.Logger) error {
	tick := time.NewTicker(removeEvery)
	defer tick.Stop()
	for changed := true; ; {
		next := t.opts.Cluster.Changed()
		t.update(client, log, changed)
		select {
		case <-next:
			changed = true
		case <-tick.C:
			changed = false
		case <-ctx.Done():
			return nil
		}
	}
}

// update adds the members that are new, and removes those that are gone. changed: the cluster did. A stream to a member that
// gossip does not see any more goes on: only its end, or another order of the key, moves it.
func (t *Table) update(client *upstream.Client, log *slog.Logger, changed bool) {
	alive := make(map[memberID]*cluster.Member)
	all := t.opts.Cluster.Members()
	for i := range all {
		if m := &all[i]; m.State == telemetry.MemberAlive && !m.Self {
			alive[idOf(m)] = m
		}
	}
	t.mu.Lock()
	known := make(map[memberID]*upstream.Origin, len(t.members))
	for id, o := range t.members {
		known[id] = o
	}
	t.mu.Unlock()
	for id, m := range alive {
		o := known[id]
		if o == nil {
			var err error
			if o, err = client.AddMember(t.member(m)); err != nil {
				log.Error("member is not used", "member", m.Name, "address", m.Address, "error", err)
				continue
			}
			known[id] = o
		}
		o.SetDraining(m.Draining)
	}
	var gone []*upstream.Origin
	for id, o := range known {
		if alive[id] == nil && o.Streams() == 0 {
			gone = append(gone, o)
			delete(known, id)
		}
	}
	t.mu.Lock()
	t.members = known
	if changed || len(gone) > 0 {
		t.announce()
	}
	t.mu.Unlock()
	for _, o := range gone {
		client.RemoveMember(o)
	}
}

// member describes a member as an origin.
func (t *Table) member(m *cluster.Member) upstream.OriginOptions {
	o := upstream.OriginOptions{
		Name: m.Name, Address: m.Address, Credentials: t.opts.Credentials, Domain: domain, ContentVersions: true,
		Metadata: func(key xds.Key) metadata.MD {
			return metadata.Pairs(keyHeader, key.String(), compatHeader, t.opts.Compat())
		},
	}
	if t.opts.OriginVersions {
		o.Domain, o.ContentVersions = m.Name, false
	}
	return o
}
