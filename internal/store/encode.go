package store

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"xdsrelay/internal/xds"
)

// header is the first record of a file. All of it but strings has a fixed width,
// so that its own length can be told before it is known what stands in it.
type header struct {
	key             xds.Key
	typ             xds.TypeURL
	origin, version string
	wildcard        bool
	received        time.Time
	confirmed       time.Time
	entries         int64
	size            int64 // of the whole file
	id              fileID
	sum             [sha256.Size]byte
}

// fileID tells one writing of a file from all others.
type fileID [16]byte

// Fields of the header.
const (
	headKey protowire.Number = iota + 1
	headType
	headOrigin
	headVersion
	headWildcard
	headReceived
	headConfirmed
	headEntries
	headSize
	headID
	headSum
)

func (h *header) append(b []byte) []byte {
	part := func(n protowire.Number, p []byte) {
		b = protowire.AppendTag(b, n, protowire.BytesType)
		b = protowire.AppendBytes(b, p)
	}
	number := func(n protowire.Number, v int64) {
		b = protowire.AppendTag(b, n, protowire.Fixed64Type)
		b = protowire.AppendFixed64(b, uint64(v))
	}
	for _, e := range h.key.Elements() {
		part(headKey, []byte(e))
	}
	part(headType, []byte(h.typ))
	part(headOrigin, []byte(h.origin))
	part(headVersion, []byte(h.version))
	number(headWildcard, int64(flag(h.wildcard)))
	part(headReceived, appendTime(nil, h.received))
	part(headConfirmed, appendTime(nil, h.confirmed))
	number(headEntries, h.entries)
	number(headSize, h.size)
	part(headID, h.id[:])
	part(headSum, h.sum[:])
	return b
}

const timeSize = 12

func appendTime(b []byte, t time.Time) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(t.Unix()))
	return binary.BigEndian.AppendUint32(b, uint32(t.Nanosecond()))
}

// newHeader is that of a record that keep returned.
func newHeader(r *Record) *header {
	h := &header{
		key: r.Key, typ: r.Type, origin: r.Origin, version: r.Version, wildcard: r.Wildcard,
		received: r.Received, confirmed: r.Confirmed, entries: int64(len(r.Entries)), sum: r.sum(),
	}
	_, _ = rand.Read(h.id[:]) // never fails
	h.size = int64(preambleSize) + int64(frameSize+len(h.append(nil))) + int64(frameSize+len(r.Node)) + int64(frameSize)
	for _, e := range r.Entries {
		h.size += int64(frameSize + 1 + e.Resource.StoredSize())
	}
	return h
}

// encode writes the file of r. enough is asked before each entry, and ends it.
func encode(w io.Writer, h *header, r *Record, enough func() error) error {
	s := newSealer(w, h.size)
	if err := s.preamble(); err != nil {
		return err
	}
	if err := s.record(kindHeader, h.append(nil)); err != nil {
		return err
	}
	if err := s.record(kindNode, r.Node); err != nil {
		return err
	}
	var buf []byte
	for _, e := range r.Entries {
		if err := enough(); err != nil {
			return err
		}
		if n := 1 + e.Resource.StoredSize(); n > maxEntry {
			return fmt.Errorf("resource %q of %d bytes is too large", e.Resource.Name, n)
		} else {
			buf = resize(buf, n)
		}
		buf = append(buf[:0], flag(e.Wild))
		buf = e.Resource.AppendStored(buf)
		if err := s.record(kindEntry, buf); err != nil {
			return err
		}
	}
	if err := s.record(kindEnd, nil); err != nil {
		return err
	}
	if s.n != h.size {
		return fmt.Errorf("%d bytes were written where %d were to be", s.n, h.size)
	}
	return s.w.Flush()
}
