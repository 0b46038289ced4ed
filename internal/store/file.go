package store

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// A file is the magic, the version of the format (4 bytes, big endian), fields in the
// encoding of protobuf, and the SHA-256 of all that.
const (
	magic         = "xdsrelay"
	formatVersion = 2
	preambleSize  = len(magic) + 4
)

// Fields of a file. An entry is a resource as xds.Resource.AppendStored writes it.
const (
	fieldKey      protowire.Number = iota + 1 // an element of the key; repeated
	fieldType                                 // type URL
	fieldOrigin                               // name of the origin
	fieldVersion                              // the origin's version of the type; "" if it gave none
	fieldReceived                             // when the newest change came; Unix time in ns
	fieldAnswered                             // 1: the origin has answered the wildcard
	fieldWild                                 // a resource that came for the wildcard; repeated
	fieldNamed                                // a resource that came for its name; repeated
)

var (
	errDamaged = errors.New("damaged")
	// errTooLarge: the file would be larger than store.max_bytes.
	errTooLarge = errors.New("larger than store.max_bytes")
)

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errDamaged}, args...)...)
}

// slot identifies a file: a type of a key.
type slot struct {
	key xds.Key
	typ xds.TypeURL
}

const (
	goodSuffix    = ".good"
	damagedSuffix = ".damaged"
	prefixSize    = 32 // of the part of a file's name that stands for the key
)

var (
	goodName    = regexp.MustCompile(`^[0-9a-f]{32}-[0-9a-f]{16}\.good$`)
	damagedName = regexp.MustCompile(`^[0-9a-f]{32}-[0-9a-f]{16}\.good\.damaged$`)
	// tempName matches the temporary files that renameio leaves after a crash.
	tempName = regexp.MustCompile(`^\.[0-9a-f]{32}-[0-9a-f]{16}\.good[0-9]+$`)
)

// prefix returns the part of a file's name that stands for the key. It is a hash, because a
// key may have any characters and any length.
func prefix(key xds.Key) string {
	var b []byte
	for _, e := range key.Elements() {
		b = binary.AppendUvarint(b, uint64(len(e)))
		b = append(b, e...)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:prefixSize/2])
}

func (s slot) name() string {
	sum := sha256.Sum256([]byte(s.typ))
	return prefix(s.key) + "-" + hex.EncodeToString(sum[:8]) + goodSuffix
}

// encode writes the file of a snapshot and returns its size. It skips resources for
// which skip returns true.
func encode(to io.Writer, at slot, s *snapshot.Snapshot, limit int64, skip func(*xds.Resource) bool) (int64, error) {
	sum := sha256.New()
	w := &counter{w: io.MultiWriter(to, sum), limit: limit}
	buf := bufio.NewWriterSize(w, 256<<10)
	field := func(n protowire.Number, v []byte) error {
		b := protowire.AppendTag(buf.AvailableBuffer(), n, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(len(v)))
		if _, err := buf.Write(b); err != nil {
			return err
		}
		_, err := buf.Write(v)
		return err
	}
	number := func(n protowire.Number, v uint64) error {
		b := protowire.AppendTag(buf.AvailableBuffer(), n, protowire.VarintType)
		_, err := buf.Write(protowire.AppendVarint(b, v))
		return err
	}
	_, err := buf.Write(binary.BigEndian.AppendUint32([]byte(magic), formatVersion))
	for _, e := range at.key.Elements() {
		err = errors.Join(err, field(fieldKey, []byte(e)))
	}
	answered := uint64(0)
	if s.Answered {
		answered = 1
	}
	err = errors.Join(err,
		field(fieldType, []byte(at.typ)),
		field(fieldOrigin, []byte(s.Origin)),
		field(fieldVersion, []byte(s.OriginVersion())),
		number(fieldReceived, uint64(s.Received.UnixNano())),
		number(fieldAnswered, answered))
	var entry []byte
	for _, n := range [...]protowire.Number{fieldWild, fieldNamed} {
		for r := range s.Part(snapshot.ScopeOf(n == fieldWild)).Resources {
			if skip(r) {
				continue
			}
			entry = r.AppendStored(entry[:0])
			if err = errors.Join(err, field(n, entry)); err != nil {
				return 0, err
			}
		}
	}
	if err = errors.Join(err, buf.Flush()); err != nil {
		return 0, err
	}
	_, err = w.Write(sum.Sum(nil))
	return w.n, err
}

// Encode returns a snapshot of a key as a file of the store has it, without the resources that may not
// be stored. It is for another relay.
func Encode(key xds.Key, s *snapshot.Snapshot) ([]byte, error) {
	var out bytes.Buffer
	_, err := encode(&out, slot{key, s.Type.URL}, s, 0, func(r *xds.Resource) bool { return !r.Storable() })
	return out.Bytes(), err
}

// Decode is the inverse of Encode. The error says what is damaged.
func Decode(b []byte) (xds.Key, *snapshot.Snapshot, error) {
	r, err := decode(b)
	if err != nil {
		return xds.Key{}, nil, err
	}
	return r.key, r.snapshot, nil
}

// counter counts bytes, and returns errTooLarge above its limit; 0: no limit.
type counter struct {
	w        io.Writer
	n, limit int64
}

func (c *counter) Write(p []byte) (int, error) {
	if c.n += int64(len(p)); c.limit > 0 && c.n > c.limit {
		return 0, errTooLarge
	}
	return c.w.Write(p)
}

// record is the content of a file.
type record struct {
	slot
	snapshot *snapshot.Snapshot
}

// decode reads a file. The error is errDamaged.
func decode(b []byte) (*record, error) {
	switch {
	case len(b) < preambleSize+sha256.Size || string(b[:len(magic)]) != magic:
		return nil, damaged("not a file of the store")
	case binary.BigEndian.Uint32(b[len(magic):]) != formatVersion:
		return nil, damaged("the format must be %d, but is %d", formatVersion, binary.BigEndian.Uint32(b[len(magic):]))
	}
	body, sum := b[:len(b)-sha256.Size], b[len(b)-sha256.Size:]
	if is := sha256.Sum256(body); !bytes.Equal(is[:], sum) {
		return nil, damaged("the SHA-256 does not match the content")
	}
	var elements []string
	var typ xds.Type
	u := snapshot.Update{}
	var answered bool
	var wild, named []*xds.Resource
	for b := body[preambleSize:]; len(b) > 0; {
		n, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return nil, damaged("%w", protowire.ParseError(size))
		}
		b = b[size:]
		if kind == protowire.VarintType {
			v, size := protowire.ConsumeVarint(b)
			if size < 0 {
				return nil, damaged("%w", protowire.ParseError(size))
			}
			b = b[size:]
			switch n {
			case fieldReceived:
				u.Received = time.Unix(0, int64(v))
			case fieldAnswered:
				answered = v == 1
			}
			continue
		}
		v, size := protowire.ConsumeBytes(b)
		if size < 0 || kind != protowire.BytesType {
			return nil, damaged("field %d cannot be read", n)
		}
		b = b[size:]
		switch n {
		case fieldKey:
			elements = append(elements, string(v))
		case fieldType:
			typ = xds.TypeOf(xds.TypeURL(v))
		case fieldOrigin:
			u.Origin = string(v)
		case fieldVersion:
			u.Version = string(v)
		case fieldWild, fieldNamed:
			r, err := xds.ReadStored(typ, v)
			if err != nil {
				return nil, damaged("%w", err)
			}
			if n == fieldWild {
				wild = append(wild, r)
			} else {
				named = append(named, r)
			}
		}
	}
	if typ.URL == "" || typ.Secret || !utf8.ValidString(u.Version) || !utf8.ValidString(u.Origin) {
		return nil, damaged("the header is not valid")
	}
	u.Type = typ.URL
	builder := snapshot.NewBuilder(typ)
	if answered {
		u.Wildcard, u.Changed = true, wild
		builder.ApplyStored(u)
	}
	if len(named) > 0 {
		u.Wildcard, u.Changed = false, named
		builder.ApplyStored(u)
	}
	out := &record{slot: slot{xds.NewKey(elements...), typ.URL}}
	out.snapshot, _ = builder.Snapshot(nil, 0)
	return out, nil
}
