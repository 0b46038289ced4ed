// Package session decides what to send to a client of one type on one stream, in both variants:
// state of the world (SotW) and delta. A Session takes requests and returns Plans.
//
//	request ─▶ Subscribe ─▶ Request ─▶ Outcome             subscription, ACK, NACK
//	snapshot ─▶ Next ─▶ Plan ─▶ Content ─▶ Body             what to send now
//	                     └─▶ Sent, NothingToSend, TooLarge   what the caller did with the plan
//
// It is pure: no I/O, no clock but the times passed in, no encoding, no counting. The caller
// encodes a plan's Body, shares the bytes between sessions with equal Keys, and sends them
// with a nonce.
//
// Words:
//
//   - A name is requested if the client subscribes to it, and unanswered until the origin says
//     what it is: a resource, an error, or nothing.
//   - An alias (VHDS) is a name that leads to resources of other names. So does a glob, which ends
//     in "/*", and "alias" includes globs here.
//   - A stream resumes if its first request states what the client already has:
//     initial_resource_versions, or version_info in SotW.
//   - A pending ACK is a response that the client has neither acknowledged nor rejected.
//
// The files, state first, then decisions:
//
//	session.go          Session: its parts, requests in, what the caller did with plans
//	subscription.go     what the client requests: names, wildcard, unsubscribed names
//	forced_names.go     names that the next response includes although nothing changed
//	client_versions.go  what the client already has when its stream begins
//	delivered.go        what the client was sent
//	acks.go             pending ACKs: whether a request is an ACK, a NACK or stale
//	nacks.go            what the client rejected, and when it is sent again
//	compare.go          what the client has against what it is to have: changed, removed, pending
//	plan.go             Next: what to send now, if anything (frame_key.go: shared responses)
//	sotw.go             SotW: changes of the list of names, the next response
//	delta.go            delta: changes of the subscription, the next response
//	ttl.go              TTLs and heartbeats
//	content.go          a response's content, the manifest
//	inspect.go          what the client has, for status, CSDS and metrics
//
// # Concurrency
//
// A Session, its Plans and a ComparisonCache have one user at a time. Snapshots, Manifests and the
// subscriptions passed in are immutable and shared.
package session
