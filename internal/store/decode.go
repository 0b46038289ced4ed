package store

import (
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"xdsrelay/internal/xds"
)

// decodeHeader reads what header.append wrote: each field once, in any order.
func decodeHeader(b []byte) (*header, error) {
	h := new(header)
	var elements []string
	seen := make(map[protowire.Number]bool)
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, damaged("a header that cannot be read")
		}
		b = b[n:]
		if seen[num] && num != headKey {
			return nil, damaged("field %d of the header is there twice", num)
		}
		seen[num] = true
		ok := false
		switch typ {
		case protowire.BytesType:
			v, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return nil, damaged("a header that cannot be read")
			}
			b = b[n:]
			if num == headKey {
				elements = append(elements, string(v))
				ok = true
			} else {
				ok = h.text(num, v)
			}
		case protowire.Fixed64Type:
			v, n := protowire.ConsumeFixed64(b)
			if n < 0 {
				return nil, damaged("a header that cannot be read")
			}
			b = b[n:]
			ok = h.number(num, int64(v))
		}
		if !ok {
			return nil, damaged("field %d of the header is wrong", num)
		}
	}
	h.key = xds.NewKey(elements...)
	if len(seen) != int(headSum) || h.typ == "" {
		return nil, damaged("a header that says too little")
	}
	return h, nil
}

func (h *header) text(num protowire.Number, v []byte) (ok bool) {
	switch num {
	case headType:
		h.typ = xds.TypeURL(v)
	case headOrigin:
		h.origin = string(v)
	case headVersion:
		h.version = string(v)
	case headReceived:
		h.received, ok = readTime(v)
		return ok
	case headConfirmed:
		h.confirmed, ok = readTime(v)
		return ok
	case headID:
		return copy(h.id[:], v) == len(v) && len(v) == len(h.id)
	case headSum:
		return copy(h.sum[:], v) == len(v) && len(v) == len(h.sum)
	default:
		return false
	}
	return utf8.Valid(v)
}

func (h *header) number(num protowire.Number, v int64) bool {
	switch num {
	case headWildcard:
		h.wildcard = v == 1
		return v == 0 || v == 1
	case headEntries:
		h.entries = v
	case headSize:
		h.size = v
	default:
		return false
	}
	return v >= 0
}

func readTime(b []byte) (time.Time, bool) {
	if len(b) != timeSize {
		return time.Time{}, false
	}
	nanos := binary.BigEndian.Uint32(b[8:])
	return time.Unix(int64(binary.BigEndian.Uint64(b)), int64(nanos)), nanos < 1e9
}

// header reads the beginning of a file of this size.
func (o *opener) header() (*header, error) {
	size := o.left
	if err := o.preamble(); err != nil {
		return nil, err
	}
	b, err := o.record(kindHeader, maxHeader)
	if err != nil {
		return nil, err
	}
	h, err := decodeHeader(b)
	switch {
	case err != nil:
		return nil, err
	case h.size != size:
		return nil, damaged("it has %d bytes of the %d that were written", size, h.size)
	case h.entries > size/int64(frameSize):
		return nil, damaged("it cannot hold %d entries", h.entries)
	}
	return h, nil
}

// decode reads a whole file of this size. Nothing but what was written comes out.
func decode(r io.Reader, size int64) (*Record, *header, error) {
	o := newOpener(r, size, bufferSize)
	h, err := o.header()
	if err != nil {
		return nil, nil, err
	}
	node, err := o.record(kindNode, maxEntry)
	if err != nil {
		return nil, nil, err
	}
	t := xds.TypeOf(h.typ)
	if t.Secret {
		return nil, nil, damaged("it is of Secrets, which are never stored")
	}
	rec := &Record{
		Key: h.key, Type: h.typ, Node: slices.Clone(node), Origin: h.origin, Version: h.version,
		Wildcard: h.wildcard, Received: h.received, Confirmed: h.confirmed,
		Entries: make([]Entry, 0, h.entries),
	}
	for range h.entries {
		b, err := o.record(kindEntry, maxEntry)
		if err != nil {
			return nil, nil, err
		}
		if len(b) == 0 || b[0] > 1 {
			return nil, nil, damaged("an entry of an unknown kind")
		}
		res, err := xds.ReadStored(t, b[1:])
		if err != nil {
			return nil, nil, damaged("%v", err)
		}
		e := Entry{Resource: res, Wild: b[0] == 1}
		if n := len(rec.Entries); n > 0 && order(rec.Entries[n-1], e) >= 0 {
			return nil, nil, damaged("resource %q is out of order", res.Name)
		}
		rec.Entries = append(rec.Entries, e)
	}
	if err := o.end(); err != nil {
		return nil, nil, err
	}
	return rec, h, nil
}

// isDamage reports whether the file, and not the reading of it, is at fault.
func isDamage(err error) bool {
	var d *damage
	return errors.As(err, &d)
}
