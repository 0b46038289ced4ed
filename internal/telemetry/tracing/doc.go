// Package tracing makes the relay's traces. An origin's response has one span, from when it was
// read until the affected clients are woken, with a child for each step. Some of the ACKs that
// follow have a span in a trace of their own, with a link to the response's.
//
// Options.Sample is the share of responses that are traced; the choice is made when a response
// comes. Of a response's ACKs the 1st, 2nd, 4th, 8th and so on have a span, at most 16. So the
// first and one of the last are included in a fleet of any size. Traces do not go to clients or
// origins.
//
// Without an endpoint there is no Tracer. Methods of a nil *Tracer and a nil *Update (of a response
// that is not traced) do nothing, so that callers need no check.
//
// Text from clients and origins (node, key, type, version, nonce, reason) goes through redact.Text
// and is cut.
//
// # Concurrency
//
// A Tracer is safe for concurrent use. Acked takes no lock, and allocates only for ACKs that have a
// span. An Update is not safe for concurrent use: it goes with the response from the stream that
// read it to the group that applies it. New starts nothing. Run, which is called once, sends from the
// SDK's bounded queue. A slow or unreachable collector loses spans and affects nothing else. Spans
// that could not be sent are counted, those that had no room in the queue are not.
package tracing
