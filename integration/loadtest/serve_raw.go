//go:build linux

package main

import (
	"encoding/binary"
	"encoding/json"
	"net"
	"sync"
)

// serveRaw writes the bytes to each socket in one goroutine each, with gRPC's length prefix and
// nothing else. It measures the kernel's cost.
func serveRaw(settings []byte) error {
	var l load
	if err := json.Unmarshal(settings, &l); err != nil {
		return err
	}
	r := &raw{load: l, more: make(chan struct{})}
	if err := prepare(r.prepare).now(0); err != nil {
		return err
	}
	lis, err := listen()
	if err != nil {
		return err
	}
	open, err := l.TLS.listener(lis)
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := open.Accept()
			if err != nil {
				return // the process ends
			}
			go r.serve(c)
		}
	}()
	return obeyAsServer(lis, r.prepare)
}

type raw struct {
	load load

	mu   sync.Mutex
	body []byte        // the newest, shared, immutable
	more chan struct{} // closed when there is a newer body
}

func (r *raw) serve(c net.Conn) {
	for {
		r.mu.Lock()
		body, more := r.body, r.more
		r.mu.Unlock()
		if _, err := c.Write(body); err != nil {
			return // the crowd reports a missing client
		}
		<-more
	}
}

func (r *raw) prepare(n int) (func() error, error) {
	body, err := r.load.body(n)
	if err != nil {
		return nil, err
	}
	framed := make([]byte, prefixBytes, prefixBytes+len(body))
	binary.BigEndian.PutUint32(framed[1:], uint32(len(body)))
	framed = append(framed, body...)
	return func() error { r.push(framed); return nil }, nil
}

func (r *raw) push(framed []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.body = framed
	close(r.more)
	r.more = make(chan struct{})
}
