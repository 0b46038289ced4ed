package grpcadmin

import (
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec that others fall back to
	"google.golang.org/grpc/mem"
)

// codec sends an answer that is already encoded. It passes all other messages to grpc's own codec.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	a, ok := v.(*answer)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	return mem.BufferSlice{mem.NewBuffer(&a.wire, a)}, nil
}

// minCapacity is a capacity with which grpc returns a buffer to its pool. It does not return
// buffers of 1,024 bytes and less.
const minCapacity = 2 << 10

// answer is an encoded response. It is the pool of its one buffer, because grpc returns the buffer
// when the transport has written all of it, or when the stream has ended.
type answer struct {
	wire []byte
	left chan struct{}
}

func newAnswer() *answer {
	return &answer{wire: make([]byte, 0, minCapacity), left: make(chan struct{})}
}

// Get is never called: the codec puts the buffer into the message.
func (a *answer) Get(n int) *[]byte { b := make([]byte, n); return &b }

// Put is called once, when the transport no longer uses the buffer.
func (a *answer) Put(*[]byte) { close(a.left) }
