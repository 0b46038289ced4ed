package fleet

import (
	"fmt"
	"sync"
	"unicode/utf8"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

const wrappedType = "type.googleapis.com/envoy.service.discovery.v3.Resource"

// item is a resource in a response. Its slices alias the response's buffer.
type item struct {
	name    []byte
	version []byte
	typeURL []byte // of the body
	body    []byte // the Any's value
	hasBody bool
	refs    *refs // set after the scan, for types that are followed
	hash    Hash
}

// scannedResponse is a response of either variant, scanned but not decoded.
type scannedResponse struct {
	version string
	typeURL string
	nonce   string
	// identifier is control_plane.identifier.
	identifier string

	items   []item
	removed [][]byte
	seen    map[uint64]int // for check: a name's hash to its item
}

// scannedPool is shared, because a response of 10,000 resources needs 2 MB of items, too much for
// each client.
var scannedPool = sync.Pool{New: func() any { return &scannedResponse{seen: make(map[uint64]int)} }}

func (f *scannedResponse) release() {
	clear(f.items)
	clear(f.removed)
	clear(f.seen)
	*f = scannedResponse{items: f.items[:0], removed: f.removed[:0], seen: f.seen}
	scannedPool.Put(f)
}

// scanSotW scans a DiscoveryResponse. f aliases b.
func scanSotW(b []byte, f *scannedResponse) error {
	return eachField(b, func(num protowire.Number, val []byte) error {
		switch num {
		case 1:
			f.version = string(val)
		case 2:
			var it item
			if err := scanAny(val, &it); err != nil {
				return fmt.Errorf("resource %d: %w", len(f.items), err)
			}
			if string(it.typeURL) == wrappedType {
				inner := it.body
				it = item{}
				if err := scanResource(inner, &it); err != nil {
					return fmt.Errorf("wrapped resource %d: %w", len(f.items), err)
				}
			}
			if len(it.name) == 0 && it.hasBody {
				it.name = fieldOne(it.body)
			}
			f.items = append(f.items, it)
		case 4:
			f.typeURL = string(val)
		case 5:
			f.nonce = string(val)
		case 6:
			f.identifier = string(fieldOne(val))
		}
		return nil
	})
}

// scanDelta scans a DeltaDiscoveryResponse. f aliases b.
func scanDelta(b []byte, f *scannedResponse) error {
	return eachField(b, func(num protowire.Number, val []byte) error {
		switch num {
		case 1:
			f.version = string(val)
		case 2:
			var it item
			if err := scanResource(val, &it); err != nil {
				return fmt.Errorf("resource %d: %w", len(f.items), err)
			}
			f.items = append(f.items, it)
		case 4:
			f.typeURL = string(val)
		case 5:
			f.nonce = string(val)
		case 6:
			f.removed = append(f.removed, val)
		case 7:
			f.identifier = string(fieldOne(val))
		}
		return nil
	})
}

// scanResource scans an envoy.service.discovery.v3.Resource.
func scanResource(b []byte, it *item) error {
	return eachField(b, func(num protowire.Number, val []byte) error {
		switch num {
		case 1:
			it.version = val
		case 2:
			return scanAny(val, it)
		case 3:
			it.name = val
		}
		return nil
	})
}

func scanAny(b []byte, it *item) error {
	it.hasBody = true
	return eachField(b, func(num protowire.Number, val []byte) error {
		switch num {
		case 1:
			it.typeURL = val
		case 2:
			it.body = val
		}
		return nil
	})
}

// fieldOne returns field 1 of a body as a string, or nil. Every type of the table has its name
// there.
func fieldOne(b []byte) []byte {
	var name []byte
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil
		}
		m := protowire.ConsumeFieldValue(num, typ, b[n:])
		if m < 0 {
			return nil
		}
		if num == 1 {
			if typ != protowire.BytesType {
				return nil
			}
			name, _ = protowire.ConsumeBytes(b[n:])
		}
		b = b[n+m:]
	}
	if !utf8.Valid(name) {
		return nil
	}
	return name
}

// eachField calls f with the value of each field: the content of a length-delimited field,
// otherwise the encoded number.
func eachField(b []byte, f func(num protowire.Number, val []byte) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		m := protowire.ConsumeFieldValue(num, typ, b)
		if m < 0 {
			return protowire.ParseError(m)
		}
		val := b[:m]
		if typ == protowire.BytesType {
			val, _ = protowire.ConsumeBytes(b)
		}
		if err := f(num, val); err != nil {
			return err
		}
		b = b[m:]
	}
	return nil
}

// codec returns responses in the transport's buffer, without a copy if it is one piece. Otherwise a
// test of 2,000 clients in one process would measure the decoder.
type codec struct{}

var _ encoding.CodecV2 = codec{}

// received is the target of codec's Unmarshal. The reader frees it.
type received struct{ buf mem.Buffer }

func (r *received) free() {
	if r.buf != nil {
		r.buf.Free()
		r.buf = nil
	}
}

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("marshal %T: not a message", v)
	}
	b, err := proto.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("marshal %T: %w", v, err)
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	r, ok := v.(*received)
	if !ok {
		return fmt.Errorf("unmarshal %T: not a frame", v)
	}
	r.buf = data.MaterializeToBuffer(mem.DefaultBufferPool())
	return nil
}

func (codec) Name() string { return "proto" }
