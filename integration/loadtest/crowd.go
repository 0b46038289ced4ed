//go:build linux

package main

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// crowdSettings are the settings of a crowd: the clients of one server.
type crowdSettings struct {
	Load    load   `json:"load"`
	Addr    string `json:"addr"`
	Raw     bool   `json:"raw"` // bare TCP: without requests and ACKs
	Readers int    `json:"readers"`
	Later   bool   `json:"later"`  // connects all at once when told to, without TLS
	Newest  bool   `json:"newest"` // counts the newest version of each client
	// Receive is the size of a client's socket buffer in bytes, which fills up while it does not
	// read. It has no effect with TLS. 0: as large as the kernel allows.
	Receive int `json:"receive,omitempty"`
}

// round is a generation as the crowd received it. Times are nanoseconds of the machine's monotonic
// clock, which all its processes share.
type round struct {
	First int64 `json:"first"` // the first byte of a message to any client
	P99   int64 `json:"p99"`   // the last byte of the client that is later than 99 % of all
	Last  int64 `json:"last"`  // the last byte of the last client
	Bytes int   `json:"bytes"` // of one message, without framing
}

func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // this clock always exists
	return t.Nano()
}

// client is one connection with its streams. It belongs to one reader.
type client struct {
	fd      int
	tls     *tls.Conn // instead of fd
	raw     bool
	fields  fields
	h2      h2
	streams []stream // only one with raw TCP
}

// stream is one stream of a client.
type stream struct {
	id       uint32
	names    []byte // that it subscribes to, encoded
	version  string // the newest, if it is counted
	msg      message
	messages int // begun messages; the generation of the newest is one less
	taken    int // bytes of DATA since its window was opened
}

// tally counts the messages of all clients. It is safe for concurrent use.
type tally struct {
	clients int
	acks    atomic.Int32 // of each client for each response

	mu     sync.Mutex
	more   sync.Cond
	rounds []tallied      // by generation
	newest map[string]int // clients by their version; nil: not counted
	err    error
}

type tallied struct {
	round
	done int
}

func (t *tally) begun(gen int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.rounds) <= gen {
		t.rounds = append(t.rounds, tallied{})
	}
	if r := &t.rounds[gen]; r.First == 0 {
		r.First = monotonic()
	}
}

func (t *tally) complete(gen, size int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &t.rounds[gen]
	r.Bytes = max(r.Bytes, size)
	r.done++
	if r.done == (t.clients*99+99)/100 {
		r.P99 = monotonic()
	}
	if r.done == t.clients {
		r.Last = monotonic()
		t.more.Broadcast()
	}
}

// moved records that a client changed from one version to another.
func (t *tally) moved(from, to string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.newest[from]--
	t.newest[to]++
	t.more.Broadcast()
}

// awaitNewest waits until all clients have a version. It returns the largest number of responses
// that one client received.
func (t *tally) awaitNewest(version string) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.err == nil && t.newest[version] < t.clients {
		t.more.Wait()
	}
	return len(t.rounds), t.err
}

func (t *tally) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = errors.Join(t.err, err)
	t.more.Broadcast()
}

// await waits until all clients have generation gen. Each client receives each generation once:
// more messages than generations are a fault of the server.
func (t *tally) await(gen int) (round, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.err == nil && (len(t.rounds) <= gen || t.rounds[gen].done < t.clients) {
		t.more.Wait()
	}
	switch {
	case t.err != nil:
		return round{}, t.err
	case len(t.rounds) > gen+1:
		return round{}, fmt.Errorf("clients received %d messages, and only %d generations were pushed", len(t.rounds), gen+1)
	}
	return t.rounds[gen].round, nil
}

// pause stops readers before they read, while it is set. It is safe for concurrent use.
type pause struct {
	mu      sync.Mutex
	changed sync.Cond
	paused  bool
}

func (p *pause) set(paused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = paused
	p.changed.Broadcast()
}

func (p *pause) wait() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.paused {
		p.changed.Wait()
	}
}

// runCrowd connects the clients and answers the parent until it closes its end.
func runCrowd(settings []byte) error {
	var s crowdSettings
	if err := json.Unmarshal(settings, &s); err != nil {
		return err
	}
	t := &tally{clients: s.Load.Clients}
	t.acks.Store(1)
	t.more.L = &t.mu
	if s.Newest {
		t.newest = make(map[string]int)
	}
	p := &pause{}
	p.changed.L = &p.mu
	readers := make([]*reader, s.Readers)
	for i := range readers {
		ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		if err != nil {
			return fmt.Errorf("epoll: %w", err)
		}
		readers[i] = &reader{tally: t, pause: p, epoll: ep, clients: make(map[int32]*client)}
	}
	for i := range s.Load.connections() {
		var err error
		if s.Later {
			r := readers[i%len(readers)]
			r.later = append(r.later, i)
		} else if s.Load.TLS != nil {
			err = connectTLS(&s, t, i)
		} else {
			err = readers[i%len(readers)].connect(&s, i)
		}
		if err != nil {
			return fmt.Errorf("client %d: %w", i, err)
		}
	}
	begin := func() {
		for _, r := range readers {
			go r.run(&s) // until the process ends
		}
	}
	if !s.Later {
		begin()
	}
	return obey(reply{}, func(c command) (reply, error) {
		switch c.Do {
		case doArrive:
			begin()
			return reply{}, nil
		case doAcknowledge:
			t.acks.Store(int32(c.N))
			return reply{}, nil
		case doStop, doRead:
			p.set(c.Do == doStop)
			return reply{}, nil
		case doNewest:
			n, err := t.awaitNewest(strconv.Itoa(c.N))
			return reply{Count: n}, err
		case doAwait:
			r, err := t.await(c.N)
			return reply{Round: &r}, err
		}
		return reply{}, fmt.Errorf("no command %q", c.Do)
	})
}

// reader reads the connections of its clients in one thread.
type reader struct {
	tally   *tally
	pause   *pause
	epoll   int
	clients map[int32]*client // by descriptor
	later   []int             // connections yet to be made
	out     []byte            // scratch: bytes to write in reply
}

// readBuffer is filled by one read. It takes a response of 100 KB at once, and fits in the
// processor's cache.
const readBuffer = 128 << 10

// connect connects client i and sends its first bytes.
func (r *reader) connect(s *crowdSettings, i int) error {
	to, err := netip.ParseAddrPort(s.Addr)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if s.Receive > 0 {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, s.Receive); err != nil {
			return err
		}
	}
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return err
	}
	c := s.client(fd)
	if err := c.begin(s, i); err != nil {
		return err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return err
	}
	r.clients[int32(fd)] = c
	return unix.EpollCtl(r.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
}

func (s *crowdSettings) client(fd int) *client {
	return &client{fd: fd, raw: s.Raw, fields: s.Load.fields()}
}

// begin sends the first requests of the streams of connection i.
func (c *client) begin(s *crowdSettings, i int) error {
	var firsts [][]byte
	each := max(s.Load.Streams, 1)
	for n := i * each; n < min((i+1)*each, s.Load.Clients); n++ {
		names := c.fields.list(s.Load.names(n))
		c.streams = append(c.streams, stream{id: uint32(streamID + 2*len(firsts)), names: names, msg: message{opaque: s.Raw}})
		firsts = append(firsts, c.fields.first(fmt.Sprintf("client-%05d", n), s.Load.nodeCluster(n), names))
	}
	if c.raw {
		return nil
	}
	return c.write(c.h2.hello(s.Addr, s.Load.path(), firsts...))
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
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// run connects the remaining clients as fast as it can, and reads until something fails.
func (r *reader) run(s *crowdSettings) {
	runtime.LockOSThread()
	events := make([]unix.EpollEvent, 256)
	buf := make([]byte, readBuffer)
	for {
		wait := -1
		if len(r.later) > 0 {
			wait = 0
			if err := r.connect(s, r.later[0]); err != nil {
				r.tally.fail(fmt.Errorf("client %d: %w", r.later[0], err))
				return
			}
			r.later = r.later[1:]
		}
		n, err := unix.EpollWait(r.epoll, events, wait)
		if err != nil && !errors.Is(err, unix.EINTR) {
			r.tally.fail(fmt.Errorf("epoll: %w", err))
			return
		}
		r.pause.wait()
		for _, e := range events[:max(n, 0)] {
			if err := r.read(r.clients[e.Fd], buf); err != nil {
				r.tally.fail(fmt.Errorf("client: %w", err))
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
		if !c.raw {
			opened(&st.taken, len(b), id, &r.out)
		}
		return st.msg.feed(b, func() error { return r.begun(st) }, func() error { return r.done(c, st) })
	}
	if c.raw {
		err = data(streamID, b)
	} else {
		err = c.h2.feed(b, &r.out, data)
	}
	if err != nil || len(r.out) == 0 {
		return err
	}
	return c.write(r.out)
}

func (r *reader) begun(st *stream) error {
	r.tally.begun(st.messages)
	st.messages++
	return nil
}

func (r *reader) done(c *client, st *stream) error {
	for range r.tally.acks.Load() {
		if c.raw {
			break
		}
		r.out = c.fields.appendACK(r.out, st.id, st.msg.version, st.msg.nonce, st.names)
	}
	r.tally.complete(st.messages-1, st.msg.size)
	if v := string(st.msg.version); r.tally.newest != nil {
		r.tally.moved(st.version, v)
		st.version = v
	}
	return nil
}
