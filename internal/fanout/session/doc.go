// Package session decides what a client is sent of one type on one stream, in both variants:
// state of the world (SotW) and delta. A Session takes requests and gives Plans.
//
//	request ─▶ Subscribe ─▶ Request ─▶ Outcome             what the client asks for and answers
//	snapshot ─▶ Next ─▶ Plan ─▶ Content ─▶ Body             what there is to send now
//	                     └─▶ Sent, NothingToSend, TooLarge   what became of the plan
//
// It is pure: no I/O, no clock but the times passed in, no encoding, no counting. The caller
// encodes a plan's Body, shares the bytes between sessions with equal Keys, and sends them
// with a nonce.
//
// The files, state first, then decisions:
//
//	session.go       Session: its parts, requests in, what became of plans
//	subscription.go  what the client asks for: names, wildcard, unsubscribed names
//	forced_names.go  names that the next response answers although nothing changed
//	reconnect.go     what the client brought from another stream
//	delivered.go     what the client was sent
//	acks.go          nonces, responses in flight: which request is an ACK, a NACK or stale
//	nacks.go         what the client refused, and when it is sent again
//	compare.go       what the client has against what it is to have: changed, removed, pending
//	plan.go          Next: whether and what to send now
//	sotw.go          SotW: changes of the list of names, the next response
//	delta.go         delta: changes of the subscription, the next response
//	ttl.go           TTLs and heartbeats
//	content.go       a response's content, the key by which it is shared, its manifest
//	inspect.go       what a client has, for status, CSDS and metrics
//
// # Concurrency
//
// A Session, its Plans and a Survey have one user at a time. Snapshots, Manifests and the
// subscriptions passed in are immutable and shared.
package session
