package xds

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Variant is one of the two variants of the transport protocol.
type Variant uint8

const (
	SotW Variant = iota
	Delta
)

func (v Variant) String() string {
	if v == Delta {
		return "delta"
	}
	return "sotw"
}

// Request is a DiscoveryRequest or a DeltaDiscoveryRequest, scanned on the
// wire. Its slices alias the message; scanning into the same Request again
// allocates nothing.
type Request struct {
	TypeURL []byte
	Node    []byte // nil if the request has none
	Nonce   []byte
	Version []byte // SotW: version_info

	// Names are resource_names, or resource_names_subscribe; Unsubscribe and
	// Initial are incremental only.
	Names       [][]byte
	Unsubscribe [][]byte
	Initial     []NamedVersion
	// NamesSum is a hash over Names in their order and with their number. It is
	// seeded by process; equal lists have equal sums.
	NamesSum uint64

	// Refused: error_detail is there, the request is a NACK (P13).
	Refused      bool
	ErrorCode    int32
	ErrorMessage []byte

	// Locators: the request has resource_locators (P39).
	Locators bool
}

// NamedVersion is an entry of initial_resource_versions.
type NamedVersion struct{ Name, Version []byte }

// ErrLongRequestName is P28's bound.
var ErrLongRequestName = fmt.Errorf("resource name longer than %d bytes", MaxNameBytes)

// ErrTooManyNames: a list of the request has more entries than it may.
var ErrTooManyNames = errors.New("more names")

// Entries is how many entries r has room for: what it costs to keep it.
func (r *Request) Entries() int { return cap(r.Names) + cap(r.Unsubscribe) + cap(r.Initial) }

// ErrLongType: a type URL has the bound of a name.
var ErrLongType = fmt.Errorf("type_url longer than %d bytes", MaxNameBytes)

var errUTF8 = errors.New("a string is not UTF-8")

// requestFields are the numbers that differ between the two messages.
var requestFields = [...]struct {
	version, node, names, unsubscribe, initial, typeURL, nonce, detail, locators, locators2 protowire.Number
}{
	SotW:  {version: 1, node: 2, names: 3, typeURL: 4, nonce: 5, detail: 6, locators: 7, locators2: -1, unsubscribe: -1, initial: -1},
	Delta: {version: -1, node: 1, typeURL: 2, names: 3, unsubscribe: 4, initial: 5, nonce: 6, detail: 7, locators: 8, locators2: 9},
}

// Scan reads msg into r, replacing what was there. Each of its lists may have
// maxNames entries, duplicates counted; 0: any number. The error says what is
// malformed.
func (r *Request) Scan(v Variant, msg []byte, maxNames int) error {
	if maxNames <= 0 {
		maxNames = math.MaxInt
	}
	// Left in the arrays, they would keep messages alive that are long answered.
	clear(r.Names)
	clear(r.Unsubscribe)
	clear(r.Initial)
	*r = Request{Names: r.Names[:0], Unsubscribe: r.Unsubscribe[:0], Initial: r.Initial[:0]}
	f := &requestFields[v]
	for b := msg; len(b) > 0; {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return wireError(n)
		}
		b = b[n:]
		if typ != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
				return wireError(n)
			}
			b = b[n:]
			continue
		}
		val, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return wireError(n)
		}
		b = b[n:]
		switch num {
		case f.names:
			if err := checkName(val); err != nil {
				return err
			}
			if len(r.Names) == maxNames {
				return ErrTooManyNames
			}
			r.Names = append(r.Names, val)
			// A multiplication by an odd number keeps what came before, and the
			// order; one maphash.Hash over all names costs half as much again.
			r.NamesSum = r.NamesSum*0x9e3779b97f4a7c15 + maphash.Bytes(nameSeed, val)
		case f.typeURL:
			if len(val) > MaxNameBytes {
				return ErrLongType // it is kept: by streams, and by groups
			}
			if !validName(val) {
				return errUTF8
			}
			r.TypeURL = val
		case f.nonce:
			r.Nonce = val
		case f.version:
			r.Version = val
		case f.node:
			r.Node = val
		case f.unsubscribe:
			if err := checkName(val); err != nil {
				return err
			}
			if len(r.Unsubscribe) == maxNames {
				return ErrTooManyNames
			}
			r.Unsubscribe = append(r.Unsubscribe, val)
		case f.initial:
			e, err := scanEntry(val)
			if err != nil {
				return err
			}
			if len(r.Initial) == maxNames {
				return ErrTooManyNames
			}
			r.Initial = append(r.Initial, e)
		case f.detail:
			r.Refused = true
			if err := r.scanStatus(val); err != nil {
				return err
			}
		case f.locators, f.locators2:
			r.Locators = true
		}
	}
	return nil
}

func checkName(name []byte) error {
	if len(name) > MaxNameBytes {
		return ErrLongRequestName
	}
	if !validName(name) {
		return errUTF8
	}
	return nil
}

// scanEntry reads an entry of a map<string, string>.
func scanEntry(b []byte) (e NamedVersion, err error) {
	err = eachField(b, func(num protowire.Number, typ protowire.Type, val, _ []byte) error {
		if typ == protowire.BytesType {
			switch num {
			case 1:
				e.Name = val
			case 2:
				e.Version = val
			}
		}
		return nil
	})
	if err == nil {
		err = checkName(e.Name)
	}
	return e, err
}

// scanStatus reads a google.rpc.Status.
func (r *Request) scanStatus(b []byte) error {
	return eachField(b, func(num protowire.Number, typ protowire.Type, val, _ []byte) error {
		switch {
		case num == 1 && typ == protowire.VarintType:
			c, _ := protowire.ConsumeVarint(val)
			r.ErrorCode = int32(c)
		case num == 2 && typ == protowire.BytesType:
			r.ErrorMessage = val
		}
		return nil
	})
}
