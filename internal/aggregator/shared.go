package aggregator

import (
	"slices"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"xdsrelay/internal/xds"
)

const maxShared = 100

// SharedKey is a key that two rules gave to different nodes, although their key expressions differ. So
// nodes that the rules tell apart get the same resources.
type SharedKey struct {
	Key   xds.Key
	Rules [2]string // names
	Since time.Time
}

type sharedKeys struct {
	givers *lru.Cache[xds.Key, *celRule] // the rule that gave a key first

	mu   sync.Mutex
	list []SharedKey // the last maxShared ones
}

func (s *sharedKeys) note(key xds.Key, by *celRule) {
	first, known, _ := s.givers.PeekOrAdd(key, by)
	if !known || first == by || first.keyText() == by.keyText() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.ContainsFunc(s.list, func(o SharedKey) bool { return o.Key == key }) {
		return
	}
	if len(s.list) == maxShared {
		s.list = s.list[1:]
	}
	s.list = append(s.list, SharedKey{Key: key, Rules: [2]string{first.name, by.name}, Since: time.Now()})
}

// Shared returns the keys that different rules gave since the rules came into force.
func (r *Rules) Shared() []SharedKey {
	r.shared.mu.Lock()
	defer r.shared.mu.Unlock()
	return slices.Clone(r.shared.list)
}
