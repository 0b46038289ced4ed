// Package cluster knows the members of a cluster of relays, and which of them owns a key.
//
// Members find each other by gossip, with memberlist. Each tells the others its metadata
// (metadata.go): whether it is ready or draining, and its compat. The owner of a key is its first
// candidate: the member with the best hash of key and name among those that are ready and have the
// same compat. There is no leader and no agreement. Two members may have different candidates for a
// while, and both own a key then, which does no harm.
//
// A member's name in gossip is its own name and a random suffix, which is new at each start. So a
// relay that returns with another address collides with nothing. Of two members with one name, the
// one that started later counts.
//
// memberlist does not find the members behind a healed split again. So the relay resolves the
// addresses of Options.Join periodically, and joins some that are not alive (join.go).
//
// # Concurrency
//
// All methods are safe for concurrent use. Candidates takes no lock: it reads an immutable set of
// members, which each change replaces. memberlist calls the cluster with its own lock held, so the
// cluster calls memberlist without holding its mutex. Run waits for the goroutines of this package.
// It stops memberlist but cannot wait for memberlist's goroutines, which end within seconds.
package cluster
