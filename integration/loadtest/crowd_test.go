//go:build linux

package loadtest

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// crowdSettings are the settings of a crowd: the clients of one server.
type crowdSettings struct {
	load
	addr  string
	raw   bool // bare TCP: without requests and ACKs
	later bool // connects all at once when told to, without TLS
	// receive is the size of a client's socket buffer in bytes, which fills up while it does not
	// read. It has no effect with TLS. 0: as large as the kernel allows.
	receive int
	headers [][2]string // of each stream
	lags    *lags       // of stamped load assignments; nil: they are not measured
}

// round is a generation as the crowd received it. Times are nanoseconds of the machine's clock.
type round struct {
	first int64 // the first byte of a message to any client
	p99   int64 // the last byte of the client that is later than 99 % of all
	last  int64 // the last byte of the last client
	bytes int   // of one message, without framing
	done  int   // clients that have it
}

// crowd is the clients of one server. Its methods are safe for concurrent use.
type crowd struct {
	crowdSettings
	fields  fields
	acks    atomic.Int32 // of each client for each response
	readers []*reader
	running sync.WaitGroup
	secure  []*tls.Conn

	mu      sync.Mutex
	changed sync.Cond
	rounds  []round        // by generation
	newest  map[string]int // clients by the newest version that they have
	paused  bool           // the clients do not read
	closed  bool
	err     error
}

// client is one connection with its streams. It belongs to one reader.
type client struct {
	fd      int
	tls     *tls.Conn // instead of fd
	h2      h2
	streams []stream // only one with raw TCP
}

// stream is one stream of a client.
type stream struct {
	id       uint32
	names    []byte // that it subscribes to, encoded
	version  string // the newest
	msg      message
	messages int // begun responses; the generation of the newest is one less
	size     int // of the newest response so far; a large first one in delta comes in parts
	taken    int // bytes of DATA since its window was opened
	stamps   []atomic.Int64
}

// newCrowd connects the clients. They leave at the end of the test.
func newCrowd(t testing.TB, s crowdSettings) *crowd {
	t.Helper()
	c := &crowd{crowdSettings: s, fields: s.fields(), newest: make(map[string]int)}
	c.changed.L = &c.mu
	c.acks.Store(1)
	t.Cleanup(c.close)
	for range runtime.GOMAXPROCS(0) {
		r, err := c.newReader()
		if err != nil {
			t.Fatal(err)
		}
		c.readers = append(c.readers, r)
	}
	for i := range s.connections() {
		var err error
		if r := c.readers[i%len(c.readers)]; s.later {
			r.later = append(r.later, i)
		} else if s.TLS {
			err = c.connectTLS(i)
		} else {
			err = r.connect(i)
		}
		if err != nil {
			t.Fatalf("client %d: %v", i, err)
		}
	}
	if !s.later {
		c.start()
	}
	return c
}

func (c *crowd) start() {
	for _, r := range c.readers {
		c.running.Go(r.run)
	}
}

// change changes the state under the lock.
func (c *crowd) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	c.changed.Broadcast()
}

// pause makes all clients stop reading, or read again.
func (c *crowd) pause(paused bool) { c.change(func() { c.paused = paused }) }

func (c *crowd) fail(err error) {
	c.change(func() {
		if !c.closed {
			c.err = errors.Join(c.err, err)
		}
	})
}

// close ends all clients. It may be called again.
func (c *crowd) close() {
	again := false
	c.change(func() { again, c.closed, c.paused = c.closed, true, false })
	if again {
		return
	}
	for _, r := range c.readers {
		_, _ = unix.Write(r.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
	for _, conn := range c.secure {
		_ = conn.NetConn().Close()
	}
	c.running.Wait()
	for _, r := range c.readers {
		for fd := range r.clients {
			_ = unix.Close(int(fd))
		}
		_, _ = unix.Close(r.wake), unix.Close(r.epoll)
	}
}

// wait waits until a condition holds, which is read under the lock.
func (c *crowd) wait(t testing.TB, what string, condition func() bool) {
	t.Helper()
	late := time.AfterFunc(roundMost, func() { c.fail(fmt.Errorf("not after %s", roundMost)) })
	defer late.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.err == nil && !condition() {
		c.changed.Wait()
	}
	if c.err != nil {
		t.Fatalf("%s: %v", what, c.err)
	}
}

// await waits until all clients have generation gen. Each client receives each generation once: more
// messages than generations are a fault of the server.
func (c *crowd) await(t testing.TB, gen int) (r round) {
	t.Helper()
	c.wait(t, fmt.Sprintf("generation %d at %d clients", gen, c.Clients), func() bool {
		if len(c.rounds) > gen+1 {
			c.err = fmt.Errorf("clients received %d messages, and only %d generations were pushed", len(c.rounds), gen+1)
		}
		return len(c.rounds) > gen && c.rounds[gen].done == c.Clients
	})
	c.change(func() { r = c.rounds[gen] })
	return r
}

// awaitNewest waits until all clients have a version. It returns the largest number of responses
// that one client received.
func (c *crowd) awaitNewest(t testing.TB, version string) (responses int) {
	t.Helper()
	c.wait(t, "version "+version, func() bool { return c.newest[version] == c.Clients })
	c.change(func() { responses = len(c.rounds) })
	return responses
}

func (c *crowd) begun(gen int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.rounds) <= gen {
		c.rounds = append(c.rounds, round{})
	}
	if r := &c.rounds[gen]; r.first == 0 {
		r.first = monotonic()
	}
}

// complete records that a client has a whole message, and a version after another.
func (c *crowd) complete(gen, size int, before, now string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &c.rounds[gen]
	r.bytes = max(r.bytes, size)
	r.done++
	if r.done == (c.Clients*99+99)/100 {
		r.p99 = monotonic()
	}
	c.newest[before]--
	c.newest[now]++
	if r.done == c.Clients {
		r.last = monotonic()
	}
	if r.done == c.Clients || c.newest[now] == c.Clients {
		c.changed.Broadcast()
	}
}

// reader reads the connections of its clients in one thread.
type reader struct {
	*crowd
	epoll   int
	wake    int               // an eventfd that ends it
	clients map[int32]*client // by descriptor
	later   []int             // connections yet to be made
	out     []byte            // scratch: bytes to write in reply
}

// readBuffer is filled by one read. It takes a response of 100 KB at once, and fits in the
// processor's cache.
const readBuffer = 128 << 10

func (c *crowd) newReader() (*reader, error) {
	r := &reader{crowd: c, clients: make(map[int32]*client)}
	var err error
	if r.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	if r.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC); err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	return r, r.watch(r.wake)
}

func (r *reader) watch(fd int) error {
	return unix.EpollCtl(r.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
}

// connect connects client i and sends its first bytes.
func (r *reader) connect(i int) error {
	to, err := netip.ParseAddrPort(r.addr)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	c := &client{fd: fd}
	r.clients[int32(fd)] = c
	if r.receive > 0 {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, r.receive); err != nil {
			return err
		}
	}
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return err
	}
	if err := r.begin(c, i); err != nil {
		return err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return err
	}
	return r.watch(fd)
}

// connectTLS connects client i over TLS. A goroutine reads it. The cost is the same for all servers.
func (c *crowd) connectTLS(i int) error {
	text, err := os.ReadFile(c.Cert)
	if err != nil {
		return err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(text)
	if !c.raw {
		config.NextProtos = []string{"h2"}
	}
	conn, err := tls.Dial("tcp", c.addr, config)
	if err != nil {
		return err
	}
	c.secure = append(c.secure, conn)
	one := &client{tls: conn}
	if err := c.begin(one, i); err != nil {
		return err
	}
	c.running.Go(func() {
		r, buf := &reader{crowd: c}, make([]byte, 32<<10)
		for {
			n, err := conn.Read(buf)
			if err == nil {
				err = r.take(one, buf[:n])
			}
			if err != nil {
				c.fail(fmt.Errorf("client: %w", err))
				return
			}
		}
	})
	return nil
}

// begin sends the first requests of the streams of connection i.
func (c *crowd) begin(one *client, i int) error {
	var firsts [][]byte
	each := max(c.Streams, 1)
	for n := i * each; n < min((i+1)*each, c.Clients); n++ {
		i := c.From + n
		names := c.fields.list(c.names(i))
		one.streams = append(one.streams, stream{
			id: uint32(streamID + 2*len(firsts)), names: names, msg: message{opaque: c.raw, whole: c.lags != nil}, stamps: c.lags.of(n),
		})
		firsts = append(firsts, c.fields.first(fmt.Sprintf("client-%05d", i), c.nodeCluster(i), names))
	}
	if c.raw {
		return nil
	}
	return one.write(one.h2.hello(c.addr, c.path(), c.headers, firsts...))
}

// stream returns the stream with an identifier.
func (c *client) stream(id uint32) (*stream, error) {
	if i := (int(id) - streamID) / 2; id%2 == 1 && i < len(c.streams) {
		return &c.streams[i], nil
	}
	return nil, fmt.Errorf("http2: stream %d is unknown", id)
}

// write writes a few bytes. The socket always has room for them.
func (c *client) write(b []byte) error {
	if c.tls != nil {
		_, err := c.tls.Write(b)
		return err
	}
	n, err := unix.Write(c.fd, b)
	if err == nil && n < len(b) {
		err = errors.New("no room in the socket")
	}
	return err
}

// run connects the remaining clients as fast as it can, and reads until something fails.
func (r *reader) run() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread() // servers would end with the thread that started them
	events := make([]unix.EpollEvent, 256)
	buf := make([]byte, readBuffer)
	for {
		wait := -1
		if len(r.later) > 0 {
			wait = 0
			if err := r.connect(r.later[0]); err != nil {
				r.fail(fmt.Errorf("client %d: %w", r.later[0], err))
				return
			}
			r.later = r.later[1:]
		}
		n, err := unix.EpollWait(r.epoll, events, wait)
		if err != nil && !errors.Is(err, unix.EINTR) {
			r.fail(fmt.Errorf("epoll: %w", err))
			return
		}
		r.mu.Lock()
		for r.paused {
			r.changed.Wait()
		}
		closed := r.closed
		r.mu.Unlock()
		if closed {
			return
		}
		for _, e := range events[:max(n, 0)] {
			if err := r.read(r.clients[e.Fd], buf); err != nil {
				r.fail(fmt.Errorf("client: %w", err))
				return
			}
		}
	}
}

// read reads once. If data is left, epoll reports it again.
func (r *reader) read(c *client, buf []byte) error {
	n, err := unix.Read(c.fd, buf)
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return nil
	case err != nil:
		return fmt.Errorf("read: %w", err)
	case n == 0:
		return errors.New("the server closed the connection")
	}
	return r.take(c, buf[:n])
}

// take handles the bytes that were read.
func (r *reader) take(c *client, b []byte) (err error) {
	r.out = r.out[:0]
	data := func(id uint32, b []byte) error {
		st, err := c.stream(id)
		if err != nil {
			return err
		}
		if !r.raw {
			opened(&st.taken, len(b), id, &r.out)
		}
		return st.msg.feed(b, func() error {
			if r.lags == nil || st.messages == 0 {
				r.begun(st.messages)
			}
			st.messages++
			return nil
		}, func() error { r.done(st); return nil })
	}
	if r.raw {
		err = data(streamID, b)
	} else {
		err = c.h2.feed(b, &r.out, data)
	}
	if err != nil || len(r.out) == 0 {
		return err
	}
	return c.write(r.out)
}

// done acknowledges a whole message, and records a whole response.
func (r *reader) done(st *stream) {
	for range r.acks.Load() {
		if !r.raw {
			r.out = r.fields.appendACK(r.out, st.id, st.msg.version, st.msg.nonce, st.names)
		}
	}
	if st.size += st.msg.size; r.Delta && st.messages == 1 && st.size < r.load.size(0)*8/10 {
		st.messages = 0
		return
	}
	if r.lags != nil {
		r.lags.record(st.msg.body, st.stamps)
		if st.messages > 1 {
			return
		}
	}
	before := st.version
	st.version = string(st.msg.version)
	r.complete(st.messages-1, st.size, before, st.version)
	st.size = 0
}
