// Package orchestrator joins the rules, the origins and the clients. A Registry has a Group for
// each aggregation key in use. A Group is the loop over three parts: what its subscribers want
// (audience), what origins sent (content), and its upstream streams. It subscribes at the origin to
// what its subscribers want, and wakes the subscribers that a change affects.
//
// A client joins the Registry once. A subscriber is one of its types, and belongs to the group of
// the type's key. It sees the State that its Group published last.
//
// A group has one upstream stream: an upstream.Source, which reconnects as needed, behind an
// upstreamHandle. The group opens a second one when a type is subscribed both by wildcard and by
// names, and closes a stream that carries nothing (P50).
//
// A key's life begins with its first client. Names that no client wants any more linger for
// Settings.Linger; then they are removed from the interest and forgotten in one step (P52, P65).
// Nothing expires while the key has no subscribers or no stream is open. A key without subscribers
// is dropped after Settings.IdleTTL.
//
// Where to begin: group.go has the loop of a group and the order of a step; subscribers.go feeds
// the audience, upstreams.go the content, and interest.go joins them.
//
// # Concurrency
//
// A Group's state belongs to its goroutine, which never blocks. The upstream stream gets the
// interest as a latest value. Subscriber changes come through a mailbox that has each subscriber at
// most once. Wakers neither block nor call back. Only an Update waits until the Group has applied
// it, and only the reader of that upstream stream waits for it.
//
// Other goroutines read what the Group published through atomics: its State, the newest snapshot of
// a type, the refusal of a key without an origin, and the counts of Status. Five tables have locks
// of their own: a client's types, the registry's keys, a group's mailbox, its interned
// subscriptions and its history. No two of these locks are held at once, and none across a channel
// operation, a callback or a log line.
//
// The order in which a subscriber is counted makes it safe to drop a key. Client.Subscribe counts
// the subscriber in before it posts to the mailbox, and Client.Leave counts it out before it posts.
// If the registry does not drop a group whose last subscriber has left, another subscriber's post
// is on its way.
//
// Constructors start nothing. Registry.Run owns all goroutines: one for each group, and one for
// each of its upstream streams. A goroutine of a new group reads the store. The group's upstream
// streams wait for it for at most a second, and the group itself never does.
package orchestrator
