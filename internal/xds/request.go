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

// ErrTooManyNames: a list of the request has more entries than it may, by their weight.
var ErrTooManyNames = errors.New("more names")

// Entries is how many entries r has room for: what it costs to keep it.
func (r *Request) Entries() int { return cap(r.Names) + cap(r.Unsubscribe) + cap(r.Initial) }

// ErrLongType: a type URL has the bound of a name.
var ErrLongType = fmt.Errorf("type_url longer than %d bytes", MaxNameBytes)

var errUTF8 = errors.New("a string is not UTF-8")

// field is what a field of a request says, whatever its number there.
type field uint8

const (
	ignored field = iota
	versionField
	nodeField
	namesField
	unsubscribeField
	initialField
	typeField
	nonceField
	detailField
	locatorsField
)

// requestFields are the fields by their numbers, which differ between the two
// messages.
var requestFields = [...][16]field{
	SotW:  {1: versionField, 2: nodeField, 3: namesField, 4: typeField, 5: nonceField, 6: detailField, 7: locatorsField},
	Delta: {1: nodeField, 2: typeField, 3: namesField, 4: unsubscribeField, 5: initialField, 6: nonceField, 7: detailField, 8: locatorsField, 9: locatorsField},
}

// reset empties r but for the arrays of its lists. Left in there, names would
// keep messages alive that are long answered. Field by field, it costs a third of
// what assigning a whole Request does.
func (r *Request) reset() {
	if len(r.Names)+len(r.Unsubscribe)+len(r.Initial) > 0 {
		clear(r.Names)
		clear(r.Unsubscribe)
		clear(r.Initial)
		r.Names, r.Unsubscribe, r.Initial = r.Names[:0], r.Unsubscribe[:0], r.Initial[:0]
	}
	if r.Refused {
		r.Refused, r.ErrorCode, r.ErrorMessage = false, 0, nil
	}
	r.TypeURL, r.Node, r.Nonce, r.Version = nil, nil, nil, nil
	r.NamesSum, r.Locators = 0, false
}

// Scan reads msg into r, replacing what was there. Each of its lists may have
// maxNames entries by NameWeight, duplicates counted; 0: any number. The error says
// what is malformed.
func (r *Request) Scan(v Variant, msg []byte, maxNames int) error {
	if maxNames <= 0 {
		maxNames = math.MaxInt
	}
	r.reset()
	names, unsubscribe, initial := 0, 0, 0 // weights
	fields := &requestFields[v]
	for b := msg; len(b) > 0; {
		var is field
		var val []byte
		// Of nearly all fields, the tag is one byte and the length another.
		if len(b) > 1 && b[0]&0x87 == byte(protowire.BytesType) && b[0] > 7 && int(b[1]) <= min(len(b)-2, 0x7f) {
			end := 2 + int(b[1])
			is, val, b = fields[b[0]>>3], b[2:end:end], b[end:]
		} else {
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
			if val, n = protowire.ConsumeBytes(b); n < 0 {
				return wireError(n)
			}
			b = b[n:]
			if int(num) < len(fields) {
				is = fields[num]
			}
		}
		switch is {
		case namesField:
			if err := checkName(val); err != nil {
				return err
			}
			if names += NameWeight(len(val)); names > maxNames {
				return ErrTooManyNames
			}
			r.Names = append(r.Names, val)
			// A multiplication by an odd number keeps what came before, and the
			// order; one maphash.Hash over all names costs half as much again.
			r.NamesSum = r.NamesSum*0x9e3779b97f4a7c15 + maphash.Bytes(nameSeed, val)
		case typeField:
			if len(val) > MaxNameBytes {
				return ErrLongType // it is kept: by streams, and by groups
			}
			if !validName(val) {
				return errUTF8
			}
			r.TypeURL = val
		case nonceField:
			r.Nonce = val
		case versionField:
			r.Version = val
		case nodeField:
			r.Node = val
		case unsubscribeField:
			if err := checkName(val); err != nil {
				return err
			}
			if unsubscribe += NameWeight(len(val)); unsubscribe > maxNames {
				return ErrTooManyNames
			}
			r.Unsubscribe = append(r.Unsubscribe, val)
		case initialField:
			e, err := scanEntry(val)
			if err != nil {
				return err
			}
			if initial += VersionedWeight(len(e.Name), len(e.Version)); initial > maxNames {
				return ErrTooManyNames
			}
			r.Initial = append(r.Initial, e)
		case detailField:
			r.Refused = true
			if err := r.scanStatus(val); err != nil {
				return err
			}
		case locatorsField:
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
