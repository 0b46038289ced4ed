package grpcadmin

import (
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec that others fall back to
	"google.golang.org/grpc/mem"
)

// codec sends an answer that is written already as it is. All other messages go to
// grpc's own codec.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	a, ok := v.(*answer)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	return mem.BufferSlice{mem.NewBuffer(&a.wire, a)}, nil
}

// minCapacity is what makes grpc give a buffer back to its pool: one of 1,024 bytes
// and less it does not.
const minCapacity = 2 << 10

// answer is a response on its way. It is the pool of its one buffer, which is how it
// learns that the transport has written all of it, or that its stream is over.
type answer struct {
	wire []byte
	left chan struct{}
}

func newAnswer() *answer {
	return &answer{wire: make([]byte, 0, minCapacity), left: make(chan struct{})}
}

// Get is never called: the buffer is put into the message by the codec.
func (a *answer) Get(n int) *[]byte { b := make([]byte, n); return &b }

// Put is called once, when nobody holds the buffer any more.
func (a *answer) Put(*[]byte) { close(a.left) }
