package fanout

import (
	"time"

	"google.golang.org/grpc/codes"

	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// clientLimit is the size of a message that clients of gRPC receive by default, in bytes. Envoy's
// own client has no limit. Delta responses are cut so that they are smaller (maxPart). SotW
// responses cannot be cut, nor can a single resource (P38).
const clientLimit = 4 << 20

// large is a message over clientLimit.
type large struct {
	typ  xds.Type
	size int
	seq  uint64 // number in its nonce
	at   time.Time
}

// rightAfter is how long after a large message the end of a stream is put down to it. A client
// rejects the message as soon as it has read its length.
const rightAfter = 5 * time.Second

// rejectsLarge returns why the client seems to have ended the stream: it received a message over
// its limit. gRPC does not tell the server, which sees only that the client cancels. nil: there was
// no such message, the client answered it, or the relay ended the stream.
func (st *stream) rejectsLarge(now time.Time) *refusal.Refusal {
	l := st.large.Load()
	if l == nil || now.Sub(l.at) > rightAfter || st.refusal.Load() != nil {
		return nil
	}
	return refusal.New(codes.ResourceExhausted, telemetry.MessageLimit,
		"stream: the client ended it right after a %s response of %d bytes, without an answer; gRPC clients receive 4 MiB by default (grpc.max_receive_message_length)", l.typ.Label(), l.size)
}
