package ownership

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
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

// member is a member as an origin, which runs until end is called.
type member struct {
	origin *upstream.Origin
	end    context.CancelFunc
}

// Run keeps an origin for each member until ctx ends.
func (t *Table) Run(ctx context.Context, client *upstream.Client, log *slog.Logger) error {
	var running sync.WaitGroup
	defer running.Wait()
	tick := time.NewTicker(removeEvery)
	defer tick.Stop()
	start := func(o *upstream.Origin) *member {
		ctx, end := context.WithCancel(ctx)
		running.Go(func() {
			if err := o.Run(ctx); err != nil {
				log.Error("member is not used", "member", o.Name, "address", o.Address, "error", err)
			}
		})
		return &member{o, end}
	}
	var next <-chan struct{}
	for changed := true; ; {
		if changed { // otherwise it may be closed already, at the same time as the tick
			next = t.opts.Cluster.Changed()
		}
		if err := t.update(client, start, changed); err != nil {
			log.Error("member is not used", "error", err)
		}
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

// update adds the members that are new, and ends those that are gone. changed: the cluster did. A
// stream to a member that gossip does not see any more goes on: only its end, or another order of the
// key, moves it.
func (t *Table) update(client *upstream.Client, start func(*upstream.Origin) *member, changed bool) (faults error) {
	alive := make(map[memberID]bool)
	t.mu.Lock()
	known := maps.Clone(t.members)
	t.mu.Unlock()
	for _, m := range t.opts.Cluster.Members() {
		if m.State != telemetry.MemberAlive || m.Self {
			continue
		}
		id := idOf(&m)
		alive[id] = true
		if known[id] == nil {
			o, err := client.NewMember(t.options(&m))
			if err != nil {
				faults = errors.Join(faults, err)
				continue
			}
			known[id] = start(o)
		}
		known[id].origin.SetDraining(m.Draining)
	}
	var gone []*member
	for id, m := range known {
		if !alive[id] && m.origin.Streams() == 0 {
			gone = append(gone, m)
			delete(known, id)
		}
	}
	t.mu.Lock()
	t.members = known
	if changed || len(gone) > 0 {
		t.announce()
	}
	t.mu.Unlock()
	for _, m := range gone {
		m.end()
	}
	return faults
}

// options describe a member as an origin.
func (t *Table) options(m *cluster.Member) upstream.OriginOptions {
	o := upstream.OriginOptions{
		Name: m.Name, Address: m.Address, Credentials: t.opts.Credentials, Domain: domain, ContentVersions: true,
		Identify: func(key xds.Key) (upstream.Identity, error) { return upstream.Identity{Metadata: t.metadata(key)}, nil },
	}
	if t.opts.OriginVersions {
		o.Domain, o.ContentVersions = m.Name, false
	}
	return o
}

// metadata is that of a stream of a key to a member.
func (t *Table) metadata(key xds.Key) metadata.MD {
	return metadata.Pairs(keyHeader, key.String(), compatHeader, t.opts.Compat())
}
