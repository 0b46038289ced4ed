//go:build linux

package loadtest

import (
	"encoding/binary"
	"fmt"
)

// prefixBytes come before each gRPC message: a flag for compression and the length. Raw TCP uses
// the same prefix, so that clients find the end of a message.
const prefixBytes = 5

// message reads length-prefixed messages in pieces. Of each it keeps only the two fields that an
// ACK repeats. It buffers nothing, so a client costs little more than the kernel's copy.
type message struct {
	opaque bool // the messages are not parsed
	whole  bool // the resources are kept

	left int // of the message; 0 between messages
	skip int // of the field's value

	head  [prefixBytes + 10]byte // a prefix, or a field's tag and length
	heads int
	keep  *[]byte // destination of the current value, if it is kept
	// These are from the newest message.
	version, nonce []byte
	body           []byte // the resources
	size           int
}

const (
	responseVersion   = 1
	responseResources = 2
	responseNonce     = 5
)

// feed reads a piece. It calls begun at the first byte of a message and done at its last one.
func (m *message) feed(b []byte, begun, done func() error) error {
	for len(b) > 0 {
		if m.left == 0 {
			if m.heads == 0 {
				if err := begun(); err != nil {
					return err
				}
			}
			n := copy(m.head[m.heads:prefixBytes], b)
			m.heads += n
			b = b[n:]
			if m.heads < prefixBytes {
				return nil
			}
			m.heads = 0
			m.size = int(binary.BigEndian.Uint32(m.head[1:prefixBytes]))
			if m.head[0] != 0 || m.size == 0 {
				return fmt.Errorf("message: compressed (%d) or empty (%d)", m.head[0], m.size)
			}
			m.left = m.size
			m.version, m.nonce, m.body = m.version[:0], m.nonce[:0], m.body[:0]
			if m.opaque {
				m.skip = m.left
			}
			continue
		}
		n := 0
		if m.skip > 0 {
			n = min(m.skip, len(b))
			if m.keep != nil {
				*m.keep = append(*m.keep, b[:n]...)
			}
			m.skip -= n
		} else {
			m.head[m.heads] = b[0]
			m.heads++
			n = 1
			if err := m.field(); err != nil {
				return err
			}
		}
		m.left -= n
		b = b[n:]
		if m.left == 0 {
			if m.skip > 0 || m.heads > 0 {
				return fmt.Errorf("message: its last field is cut off")
			}
			if err := done(); err != nil {
				return err
			}
		}
	}
	return nil
}

// field handles a field's tag and length, once they are complete.
func (m *message) field() error {
	tag, n := binary.Uvarint(m.head[:m.heads])
	if n == 0 && m.heads < len(m.head) {
		return nil
	}
	if n <= 0 || tag&7 != 2 {
		return fmt.Errorf("message: field % x is not of a DiscoveryResponse", m.head[:m.heads])
	}
	size, k := binary.Uvarint(m.head[n:m.heads])
	if k == 0 && m.heads < len(m.head) {
		return nil
	}
	if k <= 0 || size > uint64(m.left) {
		return fmt.Errorf("message: field % x is too long", m.head[:m.heads])
	}
	m.heads, m.skip, m.keep = 0, int(size), nil
	switch tag >> 3 {
	case responseVersion:
		m.version, m.keep = m.version[:0], &m.version
	case responseNonce:
		m.nonce, m.keep = m.nonce[:0], &m.nonce
	case responseResources:
		if m.whole {
			m.keep = &m.body
		}
	}
	return nil
}
