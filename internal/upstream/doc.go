// Package upstream is the relay as a client of its origins: one aggregated
// stream for each key, SotW or incremental, which asks for what the key's group
// wants and hands over what comes (P50–P65).
//
// A Client knows the origins and their connections. A Stream is one key's
// conversation for as long as the key lives: it is opened again when it ends,
// at the same origin or the next (stream.go). The Stream has the order in which
// the key prefers the origins. A line is a Stream at one origin: the one that the
// key uses or, while that is not the most preferred, one that it probes (probe.go,
// P56). How many keys probe an origin at a time is bounded (tries.go). An origin is
// either reached over gRPC (grpc.go) or a directory of files; both serve the same
// lines.
//
// What to ask, to acknowledge and to refuse is decided by a talk, one for each
// gRPC stream: talk.go has what both variants share (reply.go how responses are
// answered), sotw.go and delta.go what differs. A talk does no I/O and reads no clock. What a response means, held
// against what is held, is a pure function as well (judge.go).
//
// # Concurrency
//
// Constructors start nothing. Client.Run is to run for as long as any Stream's
// Run does; both return once all goroutines that they started have ended.
//
// Stream.SetInterest and Client.Origins may be called from any goroutine and
// never block. All else of a Stream belongs to the goroutine of Run. It makes the
// attempts at the origin in use. While a gRPC stream is open this goroutine (the
// loop) owns the talk; a second one only receives, and each request is sent by one
// that ends with it. Each origin that is probed has a goroutine, which makes the
// attempts there in the same way.
//
// Sink.Update is called by one goroutine at a time: by the receiver for a response,
// and by Run's once an attempt is over. Probes call neither Sink.Update nor
// Sink.Status. Sink.Held is called by all of them.
package upstream
