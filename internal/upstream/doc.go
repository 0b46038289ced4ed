// Package upstream is the relay as a client of its origins: one aggregated
// stream for each key, SotW or incremental, which asks for what the key's group
// wants and hands over what comes (P50–P65).
//
// A Client knows the origins and their connections. A Stream is one key's
// conversation for as long as the key lives: it is opened again when it ends,
// at the same origin or the next (stream.go). A line is a Stream at one origin:
// the one that serves, and, while that is not the most preferred, one that is
// tried out at each that is preferred to it (seek.go, P56), as the origin lets
// keys do so (tries.go). What is said there is kept back (stage.go) until every
// type is answered, and then handed over (handover.go); that line serves. An origin is either reached over gRPC
// (grpc.go) or a directory of files; both serve the same lines.
//
// What to ask, to acknowledge and to refuse is decided by a talk, one for each
// gRPC stream: talk.go has what both variants share (reply.go how responses are
// answered, clocks.go what is taken for absent), sotw.go and delta.go what
// differs. A talk does no I/O and reads no clock. What a response means, held
// against what is held, is a pure function as well (judge.go).
//
// # Concurrency
//
// Constructors start nothing. Client.Run is to run for as long as any Stream's
// Run does; both return once all goroutines that they started have ended.
//
// Stream.SetInterest and Client.Origins may be called from any goroutine and
// never block. All else of a Stream belongs to its Run, which decides which line
// serves. The attempts of a line are made by Run's own goroutine while the most
// preferred origin serves, since nothing else can happen then, and otherwise by
// one of the line's. While a gRPC stream is open that one (the loop) owns the talk;
// another only receives, and each request is sent by one that ends with it. Each
// origin that is to be tried out has another.
//
// Sink.Update is called by one goroutine at a time, never by two at once: by the
// receiver for a response, by the loop for a guess (P57) while the receiver has
// nothing to hand over, by that of an attempt once it is over, and by Run's when an
// attempt has ended or another line takes over, once the one before has ended, and
// before what the new one says from then on. Sink.Held is called by all of them,
// Sink.Status by Run's and that of the line that serves, never at once.
package upstream
