//go:build linux

package loadtest

import (
	"bytes"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/net/http2"
	"google.golang.org/protobuf/proto"
)

func TestLoadHasItsSize(t *testing.T) {
	for _, size := range []int{1000, 10_000, 100_000, 1_000_000} {
		for _, n := range []int{0, 1, 123456} {
			b := load{Bytes: size}.body(t, n)
			if len(b) < size*97/100 || len(b) > size*103/100 {
				t.Errorf("%d bytes for %d", len(b), size)
			}
		}
	}
	for _, delta := range []bool{false, true} {
		for _, n := range []int{0, 1, 8000} {
			l := load{Bytes: 1000, Delta: delta, Clusters: 200, Names: 100}
			b := l.body(t, n)
			if want := l.size(n); len(b) < want*9/10 || len(b) > want*11/10 {
				t.Errorf("EDS, delta %v, generation %d: %d bytes, not %d", delta, n, len(b), want)
			}
		}
	}
}

// serverBytes is the output of a gRPC server: settings, a ping, and responses in frames of odd
// sizes.
func serverBytes(t *testing.T, responses ...*discoveryv3.DiscoveryResponse) []byte {
	t.Helper()
	var out bytes.Buffer
	fr := http2.NewFramer(&out, nil)
	var stream []byte
	for _, r := range responses {
		b, err := proto.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		stream = append(stream, dataFrame(nil, streamID, b)[frameHeader:]...)
	}
	err := fr.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 7})
	for size := 1; len(stream) > 0 && err == nil; size = size*3 + 1 {
		n := min(size, len(stream))
		err = fr.WriteData(streamID, false, stream[:n])
		stream = stream[n:]
		if err == nil {
			err = fr.WritePing(false, [8]byte{1, 2, 3})
		}
	}
	if err == nil {
		err = fr.WriteSettingsAck()
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// A client finds messages, and the versions and nonces to acknowledge, however the bytes are split.
func TestClientReads(t *testing.T) {
	l := load{Bytes: 5000}
	var responses []*discoveryv3.DiscoveryResponse
	for n, nonce := range []string{"", "a", "nonce-2"} {
		r := &discoveryv3.DiscoveryResponse{Nonce: nonce}
		if err := (proto.UnmarshalOptions{Merge: true}).Unmarshal(l.body(t, n), r); err != nil {
			t.Fatal(err)
		}
		responses = append(responses, r)
	}
	text := serverBytes(t, responses...)
	for _, piece := range []int{1, 2, 7, 100, 4096, len(text)} {
		var c h2
		var msg message
		var out []byte
		begun, got := 0, 0
		for b := text; len(b) > 0; {
			n := min(piece, len(b))
			err := c.feed(b[:n], &out, func(_ uint32, b []byte) error {
				return msg.feed(b, func() error { begun++; return nil }, func() error {
					want := responses[got]
					if string(msg.version) != want.VersionInfo || string(msg.nonce) != want.Nonce || msg.size != proto.Size(want) {
						t.Errorf("pieces of %d: message %d: version %q nonce %q size %d", piece, got, msg.version, msg.nonce, msg.size)
					}
					got++
					return nil
				})
			})
			if err != nil {
				t.Fatal(err)
			}
			b = b[n:]
		}
		if begun != len(responses) || got != len(responses) {
			t.Errorf("pieces of %d: %d messages begun, %d done", piece, begun, got)
		}
		pings, settings := answers(t, out)
		if pings == 0 || pings != bytes.Count(text, []byte{1, 2, 3, 0, 0, 0, 0, 0}) || settings != 1 {
			t.Errorf("pieces of %d: answered %d pings, %d settings", piece, pings, settings)
		}
	}
}

// answers counts the replies of a client.
func answers(t *testing.T, out []byte) (pings, settings int) {
	t.Helper()
	fr := http2.NewFramer(nil, bytes.NewReader(out))
	for {
		f, err := fr.ReadFrame()
		if err != nil {
			return pings, settings
		}
		switch f := f.(type) {
		case *http2.PingFrame:
			if f.IsAck() {
				pings++
			}
		case *http2.SettingsFrame:
			if f.IsAck() {
				settings++
			}
		}
	}
}

// Input that a client does not understand is an error, not a slow run.
func TestClientRefuses(t *testing.T) {
	var trailers bytes.Buffer
	fr := http2.NewFramer(&trailers, nil)
	var c h2
	hello := c.hello("a", load{}.path(), nil, load{}.fields().first("n", nodeCluster, nil))
	// A server's trailers. The client's own headers serve as the block.
	in := http2.NewFramer(nil, bytes.NewReader(hello[len(http2.ClientPreface):]))
	for block := []byte(nil); block == nil; {
		f, err := in.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if h, ok := f.(*http2.HeadersFrame); ok {
			block = h.HeaderBlockFragment()
			if err := fr.WriteHeaders(http2.HeadersFrameParam{StreamID: streamID, BlockFragment: block, EndHeaders: true, EndStream: true}); err != nil {
				t.Fatal(err)
			}
		}
	}
	data := func(msg string) []byte { return appendFrame(nil, http2.FrameData, 0, streamID, len(msg)) }
	for name, b := range map[string][]byte{
		"ended the stream: :method: POST": trailers.Bytes(),
		"GOAWAY":                          append(appendFrame(nil, http2.FrameGoAway, 0, 0, 8), make([]byte, 8)...),
		"CONTINUATION":                    appendFrame(nil, http2.FrameContinuation, 0, 1, 0),
		"bytes":                           appendFrame(nil, http2.FrameHeaders, 0, 1, maxControl+1),
		"padded":                          append(appendFrame(nil, http2.FrameData, http2.FlagDataPadded, 1, 2), 1, 0),
		"compressed (1)":                  append(data("12345"), "\x01\x00\x00\x00\x05"...),
		"empty (0)":                       append(data("12345"), "\x00\x00\x00\x00\x00"...),
		"not of a DiscoveryResponse":      append(data("123456"), "\x00\x00\x00\x00\x05\x08"...),
		"too long":                        append(data("1234567"), "\x00\x00\x00\x00\x05\x0a\x70"...),
		"cut off":                         append(data("123456"), "\x00\x00\x00\x00\x01\x0a"...),
	} {
		var c h2
		var msg message
		var out []byte
		nop := func() error { return nil }
		err := c.feed(b, &out, func(_ uint32, b []byte) error { return msg.feed(b, nop, nop) })
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want one of %q", err, name)
		}
	}
}
