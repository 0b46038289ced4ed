package ownership

import (
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"

	"xdsrelay/internal/cluster"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
)

// Cluster is a cluster.Cluster.
type Cluster interface {
	// Candidates returns the members that may own a key, the best first.
	Candidates(key xds.Key) []*cluster.Member
	// Changed is closed at the next change of what Candidates returns.
	Changed() <-chan struct{}
	// Members returns all members that are known.
	Members() []cluster.Member
}

// Options of a Table.
type Options struct {
	Cluster Cluster
	// Compat is what the relay's members have to have in common, as the cluster has it.
	Compat func() string
	// Credentials of connections to members.
	Credentials credentials.TransportCredentials
	// OriginVersions: resources have the versions of origins (P61). Then the versions of a member count
	// at that member only.
	OriginVersions bool
	// MaxAge is store.max_age, which holds for seeds too; 0: no bound.
	MaxAge time.Duration
}

// Table has the order of sources of each key.
type Table struct {
	opts    Options
	origins []*upstream.Origin // fixed by Order
	seeding chan struct{}      // has an element for each key that asks for seeds

	mu       sync.Mutex
	members  map[memberID]*member
	served   map[xds.Key]int           // types of members
	watching map[xds.Key]chan struct{} // closed when the key's order may have changed
}

// New makes a Table. It starts nothing.
func New(o Options) *Table {
	return &Table{opts: o, seeding: make(chan struct{}, maxSeeding), members: make(map[memberID]*member), served: make(map[xds.Key]int), watching: make(map[xds.Key]chan struct{})}
}

// Order is for upstream.Options.Order.
func (t *Table) Order(origins []*upstream.Origin) upstream.Order {
	t.origins = origins
	return t
}

// maxWatching bounds the channels of keys that may not be in use any more.
const maxWatching = 1 << 16

// Origins implements upstream.Order: origins and the second for the owner, the owner, the second and
// origins for a follower, and origins alone for a key that is served to a member.
func (t *Table) Origins(key xds.Key) (order []*upstream.Origin, changed <-chan struct{}) {
	// The channel is taken first: what changes after this closes it.
	t.mu.Lock()
	watch := t.watching[key]
	if watch == nil {
		if len(t.watching) >= maxWatching {
			t.announce()
		}
		watch = make(chan struct{})
		t.watching[key] = watch
	}
	served := t.served[key] > 0
	t.mu.Unlock()
	if served {
		return t.origins, watch
	}
	best := t.opts.Cluster.Candidates(key)
	best = best[:min(len(best), 2)]
	owns := len(best) == 0 || best[0].Self
	var members []*upstream.Origin
	t.mu.Lock()
	for i := range best {
		if m := t.members[idOf(best[i])]; m != nil {
			members = append(members, m.origin)
		}
	}
	t.mu.Unlock()
	if owns {
		return slices.Concat(t.origins, members), watch
	}
	return slices.Concat(members, t.origins), watch
}

// announce closes the channels of all keys. The caller holds the lock.
func (t *Table) announce() {
	for _, watch := range t.watching {
		close(watch)
	}
	clear(t.watching)
}

// Owner returns the member that owns a key; false: this relay is no member with others yet.
func (t *Table) Owner(key xds.Key) (*cluster.Member, bool) {
	best := t.opts.Cluster.Candidates(key)
	if len(best) == 0 {
		return nil, false
	}
	return best[0], true
}

// Owns reports whether this relay owns a key. A relay without other members owns all.
func (t *Table) Owns(key xds.Key) bool {
	owner, ok := t.Owner(key)
	return !ok || owner.Self
}
