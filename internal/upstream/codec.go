package upstream

import (
	"fmt"

	"google.golang.org/grpc/mem"

	"xdsrelay/internal/buffers"
)

// rawCodec sends requests in the parts that they come in, and hands responses
// over as they stand on the wire: they are cut, never decoded.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	r, ok := v.(*request)
	if !ok {
		return nil, fmt.Errorf("upstream codec: cannot send a %T", v)
	}
	return r.buffers(), nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*mem.Buffer)
	if !ok {
		return fmt.Errorf("upstream codec: cannot receive into a %T", v)
	}
	*b = buffers.One(data) // the receiver's to free
	return nil
}
