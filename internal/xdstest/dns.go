package xdstest

import (
	"net"
	"net/netip"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// DNS is a DNS server on loopback that knows one name. It answers over UDP.
type DNS struct {
	Port int

	name dnsmessage.Name

	mu        sync.Mutex
	addresses []netip.Addr
}

// StartDNS starts a server that answers with the A records of a name, such as
// "relay.test". It runs until the end of the test.
func StartDNS(t testing.TB, name string) *DNS {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &DNS{Port: conn.LocalAddr().(*net.UDPAddr).Port, name: dnsmessage.MustNewName(name + ".")}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 4096)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return // closed
			}
			if answer, err := d.answer(buf[:n]); err == nil {
				_, _ = conn.WriteTo(answer, from) // a lost answer is asked for again
			}
		}
	}()
	t.Cleanup(func() {
		_ = conn.Close() // nothing to flush
		<-done
	})
	return d
}

// Set replaces the addresses of the name.
func (d *DNS) Set(addresses ...string) {
	var list []netip.Addr
	for _, a := range addresses {
		list = append(list, netip.MustParseAddr(a))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.addresses = list
}

func (d *DNS) answer(query []byte) ([]byte, error) {
	var p dnsmessage.Parser
	h, err := p.Start(query)
	if err != nil {
		return nil, err
	}
	q, err := p.Question()
	if err != nil {
		return nil, err
	}
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: h.ID, Response: true, Authoritative: true, RecursionDesired: h.RecursionDesired},
		Questions: []dnsmessage.Question{q},
	}
	if q.Name != d.name {
		m.RCode = dnsmessage.RCodeNameError
		return m.Pack()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if q.Type == dnsmessage.TypeA {
		for _, a := range d.addresses {
			m.Answers = append(m.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 1},
				Body:   &dnsmessage.AResource{A: a.As4()},
			})
		}
	}
	return m.Pack()
}
