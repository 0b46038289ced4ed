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
	// NamesSum is a hash of Names. It covers their order and number. Equal lists have equal sums
	// within one process.
	NamesSum uint64

	// IsNACK: the request has error_detail (P13).
	IsNACK       bool
	ErrorCode    int32
	ErrorMessage []byte

	// Locators: the request has resource_locators, which the relay refuses (P39).
	Locators bool
}

// NamedVersion is an entry of initial_resource_versions.
type NamedVersion struct{ Name, Version []byte }

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
func (r *Request) Scan(v Variant, msg []byte, maxNames int) error {
	if maxNames <= 0 {
		maxNames = math.MaxInt
	}
	r.reset()
	names, unsubscribe, initial := 0, 0, 0 // counted by NameWeight
	fields := &requestFields[v]
	for b := msg; len(b) > 0; {
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
			// Multiplying by an odd number loses nothing and makes the sum depend on the order. One
			// maphash.Hash over all names would cost 50% more.
			r.NamesSum = r.NamesSum*0x9e3779b97f4a7c15 + maphash.Bytes(nameSeed, val)
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
	return nil
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
	r.NamesSum, r.Locators = 0, false
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
