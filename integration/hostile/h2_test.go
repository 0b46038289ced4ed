package hostile

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const sotwPath = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
const deltaPath = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"

// h2 is the client's side of an HTTP/2 connection that may break the rules.
type h2 struct {
	conn    net.Conn
	out     *bufio.Writer
	fr      *http2.Framer
	block   bytes.Buffer
	enc     *hpack.Encoder
	next    uint32       // stream id
	granted atomic.Int64 // window updates received for streams
	gone    chan struct{}
}

// reading is how a connection handles its input.
type reading int

const (
	discards reading = iota
	ignores          // it never reads
)

// dial opens a connection and sends the preface and settings.
func (a *assault) dial(addr string, how reading, settings ...http2.Setting) (*h2, error) {
	raw, err := a.connect(addr)
	if err != nil {
		return nil, err
	}
	c := &h2{conn: raw, out: bufio.NewWriterSize(raw, 64<<10), next: 1, gone: make(chan struct{})}
	c.enc = hpack.NewEncoder(&c.block)
	var in *http2.Framer
	c.fr = http2.NewFramer(c.out, nil)
	c.fr.AllowIllegalWrites = true
	_, _ = c.out.WriteString(http2.ClientPreface) // flush reports all errors
	_ = c.fr.WriteSettings(settings...)
	if err := c.out.Flush(); err != nil {
		_ = raw.Close()
		return nil, err
	}
	if how == ignores {
		close(c.gone)
		return c, nil
	}
	in = http2.NewFramer(nil, bufio.NewReaderSize(raw, 64<<10))
	in.SetMaxReadFrameSize(1<<24 - 1)
	in.SetReuseFrames()
	go func() {
		defer close(c.gone)
		for {
			f, err := in.ReadFrame()
			if err != nil {
				return
			}
			if w, ok := f.(*http2.WindowUpdateFrame); ok && w.StreamID > 0 {
				c.granted.Add(1)
			}
		}
	}()
	return c, nil
}

// connect opens a TCP connection that ends with the attack.
func (a *assault) connect(addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: 5 * time.Second}
	c, err := d.DialContext(a.ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(a.ctx, func() { _ = c.Close() })
	return &owned{c, stop}, nil
}

// owned is a connection that removes itself from the attack's list when it is closed.
type owned struct {
	net.Conn
	stop func() bool
}

func (o *owned) Close() error {
	o.stop()
	_ = o.Conn.(*net.TCPConn).SetLinger(0) // so that no port stays in TIME_WAIT
	return o.Conn.Close()
}

func (c *h2) close() {
	_ = c.conn.Close() // no data is left to send
	<-c.gone
}

func (c *h2) flush() error { return c.out.Flush() }

// open opens a stream for a gRPC call.
func (c *h2) open(path string) uint32 {
	id := c.next
	c.next += 2
	c.block.Reset()
	for _, f := range []hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: path}, {Name: ":authority", Value: "relay"},
		{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
	} {
		_ = c.enc.WriteField(f) // writes to memory
	}
	_ = c.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.block.Bytes(), EndHeaders: true})
	return id
}

// message sends a gRPC message.
func (c *h2) message(id uint32, body []byte) {
	c.data(id, append(prefix(len(body)), body...))
}

// prefix is the prefix of a gRPC message.
func prefix(n int) []byte {
	p := make([]byte, 5)
	binary.BigEndian.PutUint32(p[1:], uint32(n))
	return p
}

func (c *h2) data(id uint32, b []byte) {
	for len(b) > 0 {
		part := b[:min(len(b), 16<<10)]
		b = b[len(part):]
		_ = c.fr.WriteData(id, false, part)
	}
}

// flood opens connections and sends batches of frames as fast as it can. It counts one hit per
// batch.
func (a *assault) flood(addr string, conns int, batch func(c *h2) (hits int)) {
	a.each(conns, func(int) error {
		c, err := a.dial(addr, discards)
		if err != nil {
			return err
		}
		defer c.close()
		for a.ctx.Err() == nil {
			n := batch(c)
			if err := c.flush(); err != nil {
				return nil // disconnected
			}
			a.hit(n)
		}
		return nil
	})
}
