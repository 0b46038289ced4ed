// Package orchestrator joins the rules, the origins and the clients: a Registry
// has a Group for every aggregation key in use, and a Group holds what its key's
// origin said, wants of the origin what its members want, and tells them when
// there is something new for them.
//
// A member is one type of one stream. It sees the State that its Group published last.
//
// A group has one upstream stream. It opens a second one when some type is asked for
// both by its wildcard and by names, and closes a stream that carries nothing (P50).
//
// A key lives from its first client on. What nobody wants any more stays for
// Options.Linger, and is then dropped from the interest and forgotten in one step (P52,
// P65). Nothing goes while the key has no members or no stream is open. A key without
// members is dropped after Options.IdleTTL.
//
// # Concurrency
//
// A Group's state belongs to its goroutine, which never blocks: the interest
// goes to the upstream stream as a latest value, member changes come through a
// mailbox in which a member is at most once, and Wakers neither block nor call
// back. Only Update waits, for the Group to have applied it; whoever calls it is
// an upstream reader and nobody else waits for that.
//
// Everybody else reads what is published through atomics: a group's State, a
// type's newest snapshot, the refusal of a key that cannot be served, the
// counts for status. Four small tables have locks of their own: the registry's
// keys, a group's mailbox, its interned subscriptions and its kept NACKs. No two
// of these locks are held at once, and none across a channel operation, a
// callback or a log line.
//
// The order in which a member is counted makes the end of a key safe: Join
// counts in the registry before it posts to the mailbox, and Leave counts out
// before it posts. So a group that has seen its last member leave may ask the
// registry to be dropped, and is told no only if another member's post is on
// its way.
//
// Constructors start nothing. Registry.Run owns all goroutines: for each group
// its own, and one for each of its upstream streams. A group reads the store before it opens
// its first upstream stream.
package orchestrator
