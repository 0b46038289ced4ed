//go:build linux

package loadtest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/encoding/protowire"
)

// h2 is the client's side of one HTTP/2 connection with gRPC streams, as far as the servers of this
// test need it.
type h2 struct {
	head  [frameHeader]byte
	heads int
	left  int // of the frame's payload
	ctl   []byte
	hpack []byte // all header blocks so far, to report how a stream ended
	taken int    // bytes of DATA since the connection's window was opened
}

const (
	frameHeader = 9
	streamID    = 1 // of the first stream; the next ones are 3, 5, ...
	// window is the client's flow control window, the largest, because flow control is not
	// measured. It is opened again after half of it is used.
	window = 1<<31 - 1
	// maxControl bounds the payload of control frames.
	maxControl = 64 << 10
)

// path of the stream.
func (l load) path() string {
	if l.Delta {
		return discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResources_FullMethodName
	}
	return discoveryv3.AggregatedDiscoveryService_StreamAggregatedResources_FullMethodName
}

// hello returns everything that a client sends until the first response: preface, settings, and the
// streams with more headers and the first request of each.
func (c *h2) hello(authority, path string, headers [][2]string, firsts ...[]byte) []byte {
	var out, block bytes.Buffer
	out.WriteString(http2.ClientPreface)
	fr := http2.NewFramer(&out, nil)
	enc := hpack.NewEncoder(&block)
	// All into memory: it cannot fail.
	_ = fr.WriteSettings(
		http2.Setting{ID: http2.SettingEnablePush, Val: 0},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: window},
	)
	_ = fr.WriteWindowUpdate(0, window-65535)
	for i, first := range firsts {
		id := uint32(streamID + 2*i)
		block.Reset()
		for _, f := range append([][2]string{
			{":method", "POST"}, {":scheme", "http"}, {":path", path}, {":authority", authority},
			{"content-type", "application/grpc"}, {"te", "trailers"},
		}, headers...) {
			_ = enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
		}
		_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true})
		out.Write(dataFrame(nil, id, first))
	}
	return out.Bytes()
}

// dataFrame appends a frame with one gRPC message.
func dataFrame(dst []byte, id uint32, msg []byte) []byte {
	dst = appendFrame(dst, http2.FrameData, 0, id, prefixBytes+len(msg))
	dst = binary.BigEndian.AppendUint32(append(dst, 0), uint32(len(msg)))
	return append(dst, msg...)
}

// appendFrame appends a frame's header.
func appendFrame(dst []byte, t http2.FrameType, flags http2.Flags, stream uint32, size int) []byte {
	dst = append(dst, byte(size>>16), byte(size>>8), byte(size), byte(t), byte(flags))
	return binary.BigEndian.AppendUint32(dst, stream)
}

// fields are the field numbers of a request in one variant. The delta request has no version.
type fields struct {
	node, version, names, typ, nonce protowire.Number

	url   string // the type's URL
	delta bool
}

func (l load) fields() fields {
	if l.Delta {
		return fields{node: 1, typ: 2, names: 3, nonce: 6, url: l.typ(), delta: true}
	}
	return fields{node: 2, version: 1, names: 3, typ: 4, nonce: 5, url: l.typ()}
}

// first is the request that subscribes to the encoded names, or to everything without them.
func (f fields) first(node, cluster string, names []byte) []byte {
	var n, r []byte
	n = protowire.AppendString(protowire.AppendTag(n, 1, protowire.BytesType), node)
	n = protowire.AppendString(protowire.AppendTag(n, 2, protowire.BytesType), cluster)
	r = protowire.AppendBytes(protowire.AppendTag(r, f.node, protowire.BytesType), n)
	r = protowire.AppendString(protowire.AppendTag(r, f.typ, protowire.BytesType), f.url)
	return append(r, names...)
}

// list encodes names as the subscription field of a request.
func (f fields) list(names []string) []byte {
	var out []byte
	for _, n := range names {
		out = protowire.AppendString(protowire.AppendTag(out, f.names, protowire.BytesType), n)
	}
	return out
}

// appendACK appends the frame that acknowledges a response. In SotW it repeats the names.
func (f fields) appendACK(dst []byte, id uint32, version, nonce, names []byte) []byte {
	if f.delta {
		names = nil
	}
	size := protowire.SizeBytes(len(f.url)) + protowire.SizeBytes(len(nonce)) + 2 + len(names)
	if f.version > 0 {
		size += protowire.SizeBytes(len(version)) + 1
	}
	dst = appendFrame(dst, http2.FrameData, 0, id, prefixBytes+size)
	dst = binary.BigEndian.AppendUint32(append(dst, 0), uint32(size))
	if f.version > 0 {
		dst = protowire.AppendBytes(protowire.AppendTag(dst, f.version, protowire.BytesType), version)
	}
	dst = protowire.AppendString(protowire.AppendTag(dst, f.typ, protowire.BytesType), f.url)
	dst = protowire.AppendBytes(protowire.AppendTag(dst, f.nonce, protowire.BytesType), nonce)
	return append(dst, names...)
}

// feed reads a piece of the server's output. It passes on the payload of DATA with its stream, and
// appends the reply to out.
func (c *h2) feed(b []byte, out *[]byte, data func(uint32, []byte) error) error {
	for len(b) > 0 {
		if c.heads < frameHeader {
			n := copy(c.head[c.heads:], b)
			c.heads += n
			b = b[n:]
			if c.heads < frameHeader {
				return nil
			}
			c.left = int(c.head[0])<<16 | int(c.head[1])<<8 | int(c.head[2])
			c.ctl = c.ctl[:0]
			if c.kind() != http2.FrameData && c.left > maxControl {
				return fmt.Errorf("http2: a %v frame of %d bytes", c.kind(), c.left)
			}
		}
		n := min(c.left, len(b))
		if c.kind() == http2.FrameData {
			if c.flags().Has(http2.FlagDataPadded) {
				return fmt.Errorf("http2: padded DATA")
			}
			if err := data(c.stream(), b[:n]); err != nil {
				return err
			}
			opened(&c.taken, n, 0, out)
		} else {
			c.ctl = append(c.ctl, b[:n]...)
		}
		c.left -= n
		b = b[n:]
		if c.left > 0 {
			return nil
		}
		c.heads = 0
		if c.kind() != http2.FrameData {
			if err := c.control(out); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *h2) kind() http2.FrameType { return http2.FrameType(c.head[3]) }
func (c *h2) flags() http2.Flags    { return http2.Flags(c.head[4]) }
func (c *h2) stream() uint32        { return binary.BigEndian.Uint32(c.head[5:]) & (1<<31 - 1) }

// opened opens the window of a stream, or of the connection (0), again once half of it is used up.
func opened(taken *int, n int, id uint32, out *[]byte) {
	*taken += n
	if *taken < window/2 {
		return
	}
	*out = appendFrame(*out, http2.FrameWindowUpdate, 0, id, 4)
	*out = binary.BigEndian.AppendUint32(*out, uint32(*taken))
	*taken = 0
}

// control handles a whole frame that is not DATA. It does not count the server's windows. A client
// has at most one small ACK in flight, and the server opens its windows long before they are used
// up.
func (c *h2) control(out *[]byte) error {
	switch kind := c.kind(); kind {
	case http2.FrameSettings:
		if !c.flags().Has(http2.FlagSettingsAck) {
			*out = appendFrame(*out, http2.FrameSettings, http2.FlagSettingsAck, 0, 0)
		}
	case http2.FramePing:
		if !c.flags().Has(http2.FlagPingAck) {
			*out = appendFrame(*out, http2.FramePing, http2.FlagPingAck, 0, len(c.ctl))
			*out = append(*out, c.ctl...)
		}
	case http2.FrameHeaders:
		c.hpack = append(c.hpack, c.ctl...)
		if c.flags().Has(http2.FlagHeadersEndStream) {
			return fmt.Errorf("the server ended the stream: %s", c.headers())
		}
	case http2.FrameRSTStream, http2.FrameGoAway:
		return fmt.Errorf("the server sent %v: %q", kind, c.ctl)
	case http2.FrameWindowUpdate:
	default:
		return fmt.Errorf("http2: a %v frame", kind)
	}
	return nil
}

// headers returns all received headers as text.
func (c *h2) headers() string {
	var out []string
	d := hpack.NewDecoder(4096, func(f hpack.HeaderField) { out = append(out, f.Name+": "+f.Value) })
	if _, err := d.Write(c.hpack); err != nil {
		return err.Error()
	}
	return strings.Join(out, ", ")
}
