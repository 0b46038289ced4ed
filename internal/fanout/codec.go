package fanout

import (
	"fmt"
	"sync"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec that others fall back to
	"google.golang.org/grpc/mem"

	"xdsrelay/internal/buffers"
	"xdsrelay/internal/xds"
)

// codec hands a Frame to the transport as two buffers: the shared body, and a tail with this
// stream's nonce. Nothing is marshalled or copied per stream. Requests are passed on in wire form.
// Other messages (health, reflection) go to grpc's own codec.
type codec struct{ proto encoding.CodecV2 }

func newCodec() codec {
	if mem.IsBelowBufferPoolingThreshold(tailSize) {
		panic(fmt.Sprintf("fanout: this version of grpc does not return buffers of %d bytes, so no stream would learn that a response was sent", tailSize))
	}
	return codec{proto: encoding.GetCodecV2("proto")}
}

func (codec) Name() string { return "proto" }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	out, ok := v.(*outgoing)
	if !ok {
		return c.proto.Marshal(v)
	}
	return mem.BufferSlice{mem.SliceBuffer(out.body), mem.NewBuffer(&out.tail, out)}, nil
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	in, ok := v.(*incoming)
	if !ok {
		return c.proto.Unmarshal(data, v)
	}
	if in.buffer != nil {
		return fmt.Errorf("request: the previous request was not released")
	}
	in.buffer = buffers.One(data)
	return nil
}

// incoming is a request in wire form, until release.
type incoming struct{ buffer mem.Buffer }

func (in *incoming) bytes() []byte { return in.buffer.ReadOnlyData() }

func (in *incoming) release() {
	if in.buffer != nil {
		in.buffer.Free()
		in.buffer = nil
	}
}

// tailSize is large enough that grpc returns the buffer to its pool when the message has left. It
// does not return buffers of 1,024 bytes and less; newCodec checks that.
const tailSize = 1024 + 128

// outgoing is a response that is sent: a shared body, and a tail of its own. It is also the buffer
// pool of its tail. So grpc calls Put when the message was written to the connection.
type outgoing struct {
	body   []byte
	tail   []byte
	stream *stream
	seq    uint64 // of the send
	space  [tailSize]byte
}

var outgoings = sync.Pool{New: func() any { return new(outgoing) }}

func newOutgoing(st *stream, body, nonce []byte) *outgoing {
	out := outgoings.Get().(*outgoing)
	out.body, out.stream = body, st
	out.tail = xds.AppendNonce(out.space[:0], nonce)
	return out
}

// Get is never called: the buffer is put into the message by the codec.
func (out *outgoing) Get(n int) *[]byte { b := make([]byte, n); return &b }

// Put is called once, when neither grpc nor the transport holds the tail any more. It runs on the
// transport's goroutine, maybe before SendMsg has returned. It may never be called on a broken
// connection. It takes no lock but a shard's, allocates nothing and does not call grpc.
func (out *outgoing) Put(*[]byte) {
	st, seq := out.stream, out.seq
	out.body, out.stream = nil, nil
	outgoings.Put(out)
	st.completed(seq)
}
