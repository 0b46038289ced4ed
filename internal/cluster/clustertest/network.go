package clustertest

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// queued is how many packets a Transport holds before it loses more.
const queued = 256

// Ends is how long after the end of a cluster's Run goroutines of memberlist may remain. A test in a
// bubble has to sleep so long before it returns: the bubble's time stops then.
const Ends = 20 * time.Second

// Network connects transports. The zero value has none.
type Network struct {
	mu         sync.Mutex
	transports map[string]*Transport // by address
	cut        map[[2]string]bool    // sender and receiver
}

// Transport returns a new transport at an address, an IP:port. It replaces an earlier one.
func (n *Network) Transport(address string) *Transport {
	t := &Transport{
		network: n,
		address: netip.MustParseAddrPort(address),
		packets: make(chan *memberlist.Packet, queued),
		streams: make(chan net.Conn),
		down:    make(chan struct{}),
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.transports == nil {
		n.transports, n.cut = make(map[string]*Transport), make(map[[2]string]bool)
	}
	n.transports[address] = t
	return t
}

// Link sets whether what one address sends reaches another. It does at first.
func (n *Network) Link(from, to string, up bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[[2]string{from, to}] = !up
}

// reach returns the transport at an address, nil if there is none, and whether packets arrive there
// and come back.
func (n *Network) reach(from, to string) (t *Transport, arrives, returns bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.transports[to], !n.cut[[2]string{from, to}], !n.cut[[2]string{to, from}]
}

// Transport is a memberlist.NodeAwareTransport. After Shutdown it loses what it is given, as a
// process that was killed.
type Transport struct {
	network *Network
	address netip.AddrPort
	packets chan *memberlist.Packet
	streams chan net.Conn
	once    sync.Once
	down    chan struct{}
}

var _ memberlist.NodeAwareTransport = (*Transport)(nil)

// FinalAdvertiseAddr returns the transport's address.
func (t *Transport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return t.address.Addr().AsSlice(), int(t.address.Port()), nil
}

// WriteTo sends a packet.
func (t *Transport) WriteTo(b []byte, to string) (time.Time, error) {
	now := time.Now()
	if peer, arrives, _ := t.network.reach(t.address.String(), to); peer != nil && arrives && !t.isDown() {
		select {
		case peer.packets <- &memberlist.Packet{Buf: bytes.Clone(b), From: net.UDPAddrFromAddrPort(t.address), Timestamp: now}:
		default: // it does not fit
		}
	}
	return now, nil
}

// WriteToAddress is WriteTo.
func (t *Transport) WriteToAddress(b []byte, to memberlist.Address) (time.Time, error) {
	return t.WriteTo(b, to.Addr)
}

// PacketCh returns the packets that arrive.
func (t *Transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh returns the streams that others open.
func (t *Transport) StreamCh() <-chan net.Conn { return t.streams }

// DialTimeout opens a stream. Over a link that is cut in one direction it ends with the timeout.
func (t *Transport) DialTimeout(to string, timeout time.Duration) (net.Conn, error) {
	peer, arrives, returns := t.network.reach(t.address.String(), to)
	var streams chan net.Conn // nil: never
	if arrives && returns && !t.isDown() {
		if peer == nil || peer.isDown() {
			return nil, fmt.Errorf("dial tcp %s: connection refused", to)
		}
		streams = peer.streams
	}
	near, far := net.Pipe()
	select {
	case streams <- &conn{Conn: far, from: to, to: t}:
		return &conn{Conn: near, from: t.address.String(), to: peer}, nil
	case <-time.After(timeout):
		return nil, fmt.Errorf("dial tcp %s: i/o timeout", to)
	case <-t.down:
		return nil, errors.New("the transport is down")
	}
}

// DialAddressTimeout is DialTimeout.
func (t *Transport) DialAddressTimeout(to memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return t.DialTimeout(to.Addr, timeout)
}

// Shutdown ends the transport.
func (t *Transport) Shutdown() error {
	t.once.Do(func() { close(t.down) })
	return nil
}

func (t *Transport) isDown() bool {
	select {
	case <-t.down:
		return true
	default:
		return false
	}
}

// conn is an end of a stream. What it sends over a cut link is lost.
type conn struct {
	net.Conn
	from string
	to   *Transport
}

// Write sends bytes, or loses them.
func (c *conn) Write(b []byte) (int, error) {
	if _, arrives, _ := c.to.network.reach(c.from, c.to.address.String()); !arrives {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// RemoteAddr returns the address of the other end.
func (c *conn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.to.address) }
