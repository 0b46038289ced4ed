// Package session decides what a client is sent of one type on one stream, state of the
// world and delta. A Session takes requests and gives Plans.
//
//	request ─▶ Subscribe ─▶ Request ─▶ Outcome        what the client asks for and answers
//	snapshot ─▶ Next ─▶ Plan ─▶ Content ─▶ Body        what there is to send now
//	                     └─▶ Sent, Settled or Stuck    what became of it
//
// It is pure: no I/O, no clock but the times passed in, no encoding, no counting. The
// caller encodes a plan's Body, shares the bytes between sessions with equal Keys, and sends
// them with a nonce.
//
// # Concurrency
//
// A Session, its Plans and a Survey have one user at a time. Snapshots, Manifests and the
// subscriptions passed in are immutable and shared.
package session
