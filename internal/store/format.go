package store

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
)

// A file is a preamble and records. The preamble is the same in all versions of
// the format, for ever: the magic, the version, and the SHA-256 of both. A record
// is its kind, the length of its payload, the payload, and the SHA-256 of the
// SHA-256 before it and all that. So each is bound to all that stands before it:
// nothing can be flipped, cut off, left out, said twice, moved or put together
// from two files without a sum being wrong. The last one says that nothing follows.
const (
	magic         = "xdsrelay"
	formatVersion = 1
	preambleSize  = len(magic) + 4 + sha256.Size
	frameSize     = 1 + 4 + sha256.Size // of a record, beside its payload
)

// kind of a record.
type kind byte

const (
	kindHeader    kind = 1
	kindNode      kind = 2
	kindEntry     kind = 3
	kindEnd       kind = 4
	kindConfirmed kind = 5 // of the file that is called so
)

// Bounds of a payload, whatever the length of the file: memory is taken only after
// a length is held against both.
const (
	maxHeader = 16 << 20
	maxEntry  = 1 << 30
)

// damage is what is wrong with a file that cannot be what was written.
type damage struct{ what string }

func (d *damage) Error() string { return "damaged: " + d.what }

func damaged(format string, args ...any) error { return &damage{fmt.Sprintf(format, args...)} }

// errFormat: the file is whole as far as can be told, and of another version.
var errFormat = errors.New("written in another format")

// sealer writes a file.
type sealer struct {
	w    *bufio.Writer
	h    hash.Hash
	last [sha256.Size]byte
	n    int64 // bytes written
}

// newSealer writes a file of about this size.
func newSealer(w io.Writer, size int64) *sealer {
	return &sealer{w: bufio.NewWriterSize(w, int(min(bufferSize, size))), h: sha256.New()}
}

// bufferSize is what a large file is read and written by.
const bufferSize = 256 << 10

func (s *sealer) write(p []byte) error {
	n, err := s.w.Write(p)
	s.n += int64(n)
	return err
}

func (s *sealer) preamble() error {
	b := binary.BigEndian.AppendUint32([]byte(magic), formatVersion)
	s.last = sha256.Sum256(b)
	return s.write(append(b, s.last[:]...))
}

func (s *sealer) record(k kind, payload []byte) error {
	head := frameHead(k, len(payload))
	s.last = seal(s.h, s.last, head, payload)
	for _, p := range [...][]byte{head[:], payload, s.last[:]} {
		if err := s.write(p); err != nil {
			return err
		}
	}
	return nil
}

func frameHead(k kind, n int) (head [5]byte) {
	head[0] = byte(k)
	binary.BigEndian.PutUint32(head[1:], uint32(n))
	return head
}

// seal is the sum of a record. h is used for it alone.
func seal(h hash.Hash, last [sha256.Size]byte, head [5]byte, payload []byte) (sum [sha256.Size]byte) {
	h.Reset()
	_, _ = h.Write(last[:]) // into memory
	_, _ = h.Write(head[:])
	_, _ = h.Write(payload)
	h.Sum(sum[:0])
	return sum
}

// opener reads a file. What is wrong with it is damage or errFormat; other errors
// are those of reading.
type opener struct {
	r    *bufio.Reader
	h    hash.Hash
	last [sha256.Size]byte
	left int64 // of the file
	buf  []byte
}

func newOpener(r io.Reader, size int64, buffer int64) *opener {
	return &opener{r: bufio.NewReaderSize(r, int(min(buffer, size))), h: sha256.New(), left: size}
}

func (o *opener) read(p []byte) error {
	n, err := io.ReadFull(o.r, p)
	o.left -= int64(n)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return damaged("it ends too early")
	}
	return err
}

func (o *opener) preamble() error {
	var b [preambleSize]byte
	if err := o.read(b[:]); err != nil {
		return err
	}
	said := b[:len(b)-sha256.Size]
	o.last = sha256.Sum256(said)
	switch {
	case !bytes.HasPrefix(said, []byte(magic)):
		return damaged("it does not begin as a file of the store")
	case !bytes.Equal(o.last[:], b[len(said):]):
		return damaged("the sum of its beginning is wrong")
	}
	if v := binary.BigEndian.Uint32(said[len(magic):]); v != formatVersion {
		return fmt.Errorf("%w: version %d, this program's is %d", errFormat, v, formatVersion)
	}
	return nil
}

// record reads the next one, which has to be of this kind. The payload is good
// until the next call.
func (o *opener) record(want kind, bound int64) ([]byte, error) {
	var head [5]byte
	if err := o.read(head[:]); err != nil {
		return nil, err
	}
	n := int64(binary.BigEndian.Uint32(head[1:]))
	switch {
	case kind(head[0]) != want:
		return nil, damaged("a record of kind %d where one of kind %d belongs", head[0], want)
	case n > bound, n > o.left-sha256.Size:
		return nil, damaged("a record of %d bytes, with %d left of the file", n, o.left)
	}
	o.buf = resize(o.buf, int(n))
	if err := o.read(o.buf); err != nil {
		return nil, err
	}
	var said [sha256.Size]byte
	if err := o.read(said[:]); err != nil {
		return nil, err
	}
	if o.last = seal(o.h, o.last, head, o.buf); o.last != said {
		return nil, damaged("the sum of a record is wrong")
	}
	return o.buf, nil
}

// end reads the record that nothing follows.
func (o *opener) end() error {
	b, err := o.record(kindEnd, 0)
	switch {
	case err != nil:
		return err
	case len(b) != 0 || o.left != 0:
		return damaged("%d bytes follow its end", o.left)
	}
	switch _, err := o.r.ReadByte(); {
	case err == nil:
		return damaged("something follows its end")
	case !errors.Is(err, io.EOF):
		return err
	}
	return nil
}

// maxSpare is how large a buffer is kept for the next record.
const maxSpare = 1 << 20

// resize returns a buffer of n bytes, b itself if it has room. One that was large
// is not kept for small ones.
func resize(b []byte, n int) []byte {
	if n <= cap(b) && (cap(b) <= maxSpare || n > cap(b)/2) {
		return b[:n]
	}
	return make([]byte, n)
}
