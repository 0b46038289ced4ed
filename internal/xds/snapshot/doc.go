// Package snapshot has what the relay knows of the resources of a key, as immutable data, and
// applies changes to it. It starts no goroutine, does no I/O and reads no clock.
//
//	origin ──Update──▶ Builder ──Snapshot──▶ State ──Look, Changes──▶ client with a Subscription
//
// An origin's answers come as Updates. A Builder applies them to one type of one key and makes
// Snapshots. A State has the Snapshots of all types at one time. A Subscription is what one
// client subscribes to, and an Interest is what a key requests from an origin. Snapshot.Look
// returns what a client with a Subscription may know of a name.
//
//   - update.go, subscription.go: what comes in: an origin's Update, a client's Subscription
//   - snapshot.go: what is known of each name, and what a client may know of it
//   - changes.go: what changed between two Snapshots
//   - builder.go: how an Update of an origin or of the store changes what is known
//   - alias_index.go, builder_aliases.go: resources that clients subscribe to by alias or glob
//   - expiry.go: TTLs, and resources that must not be cached
//   - resource_errors.go: an origin's errors for single names
//   - wildcard_and_names.go: the two parts of what is known of a type
//   - undo_log.go: replaced resources, kept for operators
//   - version_progress.go: how many clients have which version
//
// What is known of a type has two parts: what the wildcard brought, and what subscriptions to names
// brought (P50). They come on different upstream streams if a key has both.
//
// # Concurrency
//
// Snapshot, State, Subscription, Update and Interest are immutable and may be shared, with two
// exceptions, both atomic. Subscription.Unshared is a hint and may be out of date. Snapshot.Derived
// computes a value at the first call and may drop it. A Builder is used by one goroutine at a time.
// An UndoLog may be read while its owner adds to it. A VersionProgress is safe for concurrent use.
package snapshot
