// Package tracing makes the relay's traces: one span for a response of an origin,
// from when it was read until the clients that it concerns are woken, with a child
// for each step on the way; and for a few of the ACKs that follow a span each, of a
// trace of its own, with a link to the response's.
//
// Which responses are traced is a share of them (Options.Sample), decided as they
// come. Of the clients' answers the 1st, 2nd, 4th, 8th and so on are told, at most
// 16 a response: so the first and the last of a fleet are among them, however
// many clients there are. Nothing of a trace goes to a client or to an origin.
//
// Without an endpoint there is no Tracer. A nil *Tracer and a nil *Update (of a
// response that is not traced) do nothing, so that who calls does not ask.
//
// What clients and origins say (node, key, type, version, nonce, reason) goes through
// redact.Text, and is cut.
//
// # Concurrency
//
// A Tracer is safe for concurrent use. Acked takes no lock and does not allocate
// but for the few that are told. An Update has one user at a time: it goes with
// the response from the stream that read it to the group that applies it. New
// starts nothing; Run sends, over a queue with a bound, and is called once. A
// collector that is slow or away costs spans, which are counted, and nothing else.
package tracing
