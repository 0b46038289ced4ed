// Package upstream is the relay as a client of its origins. Each key has one aggregated stream,
// SotW or delta. It subscribes to what the key's group wants and passes on each update (P50–P65).
//
// A Client holds the origins (client.go). An Origin has its settings, and what the kept connection
// and all keys together know about it: whether it is away or silent, and when a key may open a
// stream there (origin.go, opening_pace.go). An attemptEnd says which attempts are failures.
//
// A Source keeps one key subscribed for as long as the key lives (source.go). It chooses the origin
// by the key's Order, which may change (order.go), and reconnects at the same origin or at the next
// (P54, P56; package timing). A stream is a Source's stream at one origin (stream.go): the key's
// stream, a probe of a preferred origin, which becomes the key's stream (probe.go), or a trial of
// what the origin may end the key's stream for (suspects.go, package suspects). An interestCell
// tells a stream that the interest changed (interest.go).
//
// An origin is reached over gRPC (grpc.go, package connections), or it is a directory (package
// filesource), or another relay of the cluster (members.go). The relay keeps one connection to each
// gRPC origin, also without a stream, so that a wrong origin shows before a client needs it. Keys
// wait for this connection instead of dialing. Both kinds serve a stream. An adsStream runs one
// gRPC stream (adsstream.go). Package adsclient decides what to send and what a response means.
//
// # Concurrency
//
// Constructors start nothing. Client.Run must run for as long as any Source's Run does. Both
// return once all goroutines that they started have ended.
//
// Source.SetInterest, Source.Suspended, Source.Current and Client.Origins may be called from any
// goroutine and never block. The rest of a Source belongs to the goroutine of Run, which makes the
// attempts at the origin in use. While a gRPC stream is open this goroutine owns the conversation.
// A second goroutine only receives. For each request, a further goroutine sends it and ends. Each
// origin that is probed has a goroutine, which makes the attempts there in the same way. If the
// order of the key may change, or an origin is probed, one goroutine follows the order. While
// something is excluded, one goroutine makes the trials. Each gRPC origin has a goroutine that
// follows the kept connection.
//
// Of one stream, Sink.Update is called by one goroutine at a time: by the receiver for a response,
// and by the loop for responses that a probe kept back. The key's stream and a trial may call it at
// the same time. A probe calls neither Sink.Update nor Sink.Status before it becomes the key's
// stream. All of them call Sink.Newest.
package upstream
