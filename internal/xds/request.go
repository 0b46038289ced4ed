package xds

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Variant is a variant of the transport protocol: SotW or delta.
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

// Request is a DiscoveryRequest or a DeltaDiscoveryRequest, scanned on the wire. Its slices alias
// the message. A Request can be scanned into again, and then reuses its lists.
type Request struct {
	TypeURL []byte
	Node    []byte // nil if the request has none
	Nonce   []byte
	Version []byte // SotW: version_info

	// Names are resource_names (SotW) or resource_names_subscribe (delta). Unsubscribe and Initial
	// are set in delta only.
	Names       [][]byte
	Unsubscribe [][]byte
	Initial     []NamedVersion
	// SotW: List identifies the whole list of names. The list begins with the names of Known, which
	// are not in Names. Known is zero if Scan recognised none of its known lists.
	List, Known NameList

	// IsNACK: the request has error_detail (P13).
	IsNACK       bool
	ErrorCode    int32
	ErrorMessage []byte

	// Locators: the request has resource_locators, which the relay refuses (P39).
	Locators bool
}

// NamedVersion is an entry of initial_resource_versions.
type NamedVersion struct{ Name, Version []byte }

// NameList identifies the list of names of a SotW request by its bytes in the message. It holds
// none of the names. Lists of equal bytes are equal within one process. The zero NameList is the
// empty list.
type NameList struct {
	sum    uint64 // hash of the bytes
	bytes  int32  // their number; negative: the list is not in one piece, or too long
	weight int32  // of the names, with duplicates
}

// Empty reports whether the list has no names.
func (l NameList) Empty() bool { return l == NameList{} }

// Repeats reports whether the list is known to have the names of o in the same order.
func (l NameList) Repeats(o NameList) bool { return l == o && l.bytes >= 0 }

// beginsWith reports whether b begins with the list's bytes.
func (l NameList) beginsWith(b []byte) bool {
	return l.bytes > 0 && int(l.bytes) <= len(b) && maphash.Bytes(nameSeed, b[:l.bytes]) == l.sum
}

// ErrLongRequestName: a name is longer than the limit (P28).
var ErrLongRequestName = fmt.Errorf("resource name longer than %d bytes", MaxNameBytes)

// ErrTooManyNames: a list of the request has too many names, counted by NameWeight.
var ErrTooManyNames = errors.New("more names")

// ErrLongType: the type URL is longer than a name may be.
var ErrLongType = fmt.Errorf("type_url longer than %d bytes", MaxNameBytes)

// Entries returns the number of list entries that r has memory for. A pool uses it to drop large
// Requests.
func (r *Request) Entries() int { return cap(r.Names) + cap(r.Unsubscribe) + cap(r.Initial) }

// requestField is the meaning of a field. Its number differs between the two messages.
type requestField uint8

const (
	otherRequestField requestField = iota
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

// requestFields has the meaning of each field number, by variant.
var requestFields = [...][16]requestField{
	SotW:  {1: versionField, 2: nodeField, 3: namesField, 4: typeField, 5: nonceField, 6: detailField, 7: locatorsField},
	Delta: {1: nodeField, 2: typeField, 3: namesField, 4: unsubscribeField, 5: initialField, 6: nonceField, 7: detailField, 8: locatorsField, 9: locatorsField},
}

// Scan reads msg into r and replaces what r had. maxNames limits each list, counted by NameWeight
// with duplicates; 0 means no limit. The error says what is malformed or too large. After an error,
// the fields of r are incomplete.
//
// known are lists of earlier SotW requests. If the list of names begins with one of them, Scan does
// not read those names again: r.Known is the longest such list. Hashing a list costs a fifth of
// reading it.
func (r *Request) Scan(v Variant, msg []byte, maxNames int, known ...NameList) error {
	if maxNames <= 0 {
		maxNames = math.MaxInt
	}
	r.reset()
	names, unsubscribe, initial := 0, 0, 0 // counted by NameWeight
	fields := &requestFields[v]
	list, scattered := span{}, false // the list of names
	for b := msg; len(b) > 0; {
		start := len(msg) - len(b)
		if len(known) > 0 && list.end == 0 && b[0] == namesTag && v == SotW {
			if r.Known = longest(known, b); !r.Known.Empty() {
				if names = int(r.Known.weight); names > maxNames {
					return ErrTooManyNames
				}
				b = b[r.Known.bytes:]
				list = span{start, len(msg) - len(b)}
				continue
			}
		}
		var kind requestField
		var val []byte
		// Fast path: in nearly all fields, the tag and the length have one byte each.
		if len(b) > 1 && b[0]&0x87 == byte(protowire.BytesType) && b[0] > 7 && int(b[1]) <= min(len(b)-2, 0x7f) {
			end := 2 + int(b[1])
			kind, val, b = fields[b[0]>>3], b[2:end:end], b[end:]
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
				kind = fields[num]
			}
		}
		switch kind {
		case namesField:
			if err := checkName(val); err != nil {
				return err
			}
			if names += NameWeight(len(val)); names > maxNames {
				return ErrTooManyNames
			}
			r.Names = append(r.Names, val)
			if list.end == 0 {
				list.start = start
			}
			scattered = scattered || list.end != 0 && list.end != start
			list.end = len(msg) - len(b)
		case typeField:
			if len(val) > MaxNameBytes {
				return ErrLongType // streams and groups keep the type URL
			}
			if !isUTF8(val) {
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
			r.IsNACK = true
			if err := r.scanStatus(val); err != nil {
				return err
			}
		case locatorsField:
			r.Locators = true
		}
	}
	if v == SotW && list.end > 0 {
		r.List = r.Known
		if size := list.end - list.start; scattered || size > math.MaxInt32 {
			r.List = NameList{bytes: -1}
		} else if size > int(r.Known.bytes) {
			r.List = NameList{maphash.Bytes(nameSeed, msg[list.start:list.end]), int32(size), int32(names)}
		}
	}
	return nil
}

// namesTag is the encoded tag of resource_names in a DiscoveryRequest.
const namesTag = 3<<3 | byte(protowire.BytesType)

// span is a part of a message; an end of zero: there is none.
type span struct{ start, end int }

// longest returns the longest known list that b begins with; zero: b begins with none.
func longest(known []NameList, b []byte) (best NameList) {
	for _, l := range known {
		if l.bytes > best.bytes && l.beginsWith(b) {
			best = l
		}
	}
	return best
}

// reset empties r but keeps the arrays of its lists. It clears the arrays, since old names would
// keep old messages alive. Assigning field by field costs a third of assigning a whole Request.
func (r *Request) reset() {
	if len(r.Names)+len(r.Unsubscribe)+len(r.Initial) > 0 {
		clear(r.Names)
		clear(r.Unsubscribe)
		clear(r.Initial)
		r.Names, r.Unsubscribe, r.Initial = r.Names[:0], r.Unsubscribe[:0], r.Initial[:0]
	}
	if r.IsNACK {
		r.IsNACK, r.ErrorCode, r.ErrorMessage = false, 0, nil
	}
	r.TypeURL, r.Node, r.Nonce, r.Version = nil, nil, nil, nil
	r.List, r.Known, r.Locators = NameList{}, NameList{}, false
}

// checkName returns an error for a name that is too long or not UTF-8.
func checkName(name []byte) error {
	if len(name) > MaxNameBytes {
		return ErrLongRequestName
	}
	if !isUTF8(name) {
		return errUTF8
	}
	return nil
}

// scanEntry reads an entry of a map<string, string>. The slices alias b.
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

// scanStatus reads the code and message of a google.rpc.Status.
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
