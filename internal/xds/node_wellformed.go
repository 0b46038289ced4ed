package xds

import (
	"errors"
	"sync"
	"unicode/utf8"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// A node is well-formed if protobuf can decode it. The check does not decode the node, because
// decoding 1 MB would leave 50 MB of garbage.

// messageSchema lists the fields of a message type that can be malformed.
type messageSchema struct {
	fields map[protowire.Number]fieldSchema
	small  [32]fieldSchema // the fields with small numbers, for a faster lookup
}

type fieldSchema struct {
	kind    fieldKind
	message *messageSchema // for messageField
}

type fieldKind uint8

const (
	otherField fieldKind = iota // any value is valid: numbers, bytes, unknown fields
	stringField
	messageField
	packedVarints // a packed list
	packedFixed32
	packedFixed64
)

// maxNested is the number of levels to which messages may be nested. It is protobuf's own limit.
const maxNested = protowire.DefaultRecursionLimit

var nodeSchema = sync.OnceValue(func() *messageSchema {
	return schemaOf((*corev3.Node)(nil).ProtoReflect().Descriptor(), make(map[protoreflect.FullName]*messageSchema))
})

// schemaOf returns the schema of a message type. It adds the schemas of this type and of the types
// in it to known.
func schemaOf(d protoreflect.MessageDescriptor, known map[protoreflect.FullName]*messageSchema) *messageSchema {
	if f := known[d.FullName()]; f != nil {
		return f
	}
	f := &messageSchema{fields: make(map[protowire.Number]fieldSchema)}
	known[d.FullName()] = f
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		var w fieldSchema
		switch k := fd.Kind(); {
		case k == protoreflect.MessageKind:
			w = fieldSchema{messageField, schemaOf(fd.Message(), known)}
		case k == protoreflect.StringKind:
			w.kind = stringField
		case !fd.IsList() || k == protoreflect.BytesKind:
			continue
		case k == protoreflect.Fixed32Kind || k == protoreflect.Sfixed32Kind || k == protoreflect.FloatKind:
			w.kind = packedFixed32
		case k == protoreflect.Fixed64Kind || k == protoreflect.Sfixed64Kind || k == protoreflect.DoubleKind:
			w.kind = packedFixed64
		default:
			w.kind = packedVarints
		}
		f.fields[fd.Number()] = w
		if int(fd.Number()) < len(f.small) {
			f.small[fd.Number()] = w
		}
	}
	return f
}

var (
	errNodeString    = errors.New("a string is not UTF-8")
	errNestedTooDeep = errors.New("messages are nested too deep")
	errFieldNumber   = errors.New("a field has no valid number")
	errPackedList    = errors.New("a list ends within a number")
)

// checkWellFormed returns an error if protobuf cannot decode b, a message with the schema f. nested
// is the number of levels that may still follow.
func checkWellFormed(f *messageSchema, b []byte, nested int) error {
	if nested--; nested < 0 {
		return errNestedTooDeep
	}
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return wireError(n)
		}
		if num > protowire.MaxValidNumber {
			return errFieldNumber
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
		var w fieldSchema
		if int(num) < len(f.small) {
			w = f.small[num]
		} else {
			w = f.fields[num]
		}
		if err := w.check(val, nested); err != nil {
			return err
		}
	}
	return nil
}

func (w *fieldSchema) check(val []byte, nested int) error {
	switch w.kind {
	case stringField:
		if !utf8.Valid(val) {
			return errNodeString
		}
	case messageField:
		return checkWellFormed(w.message, val, nested)
	case packedVarints:
		for len(val) > 0 {
			_, n := protowire.ConsumeVarint(val)
			if n < 0 {
				return wireError(n)
			}
			val = val[n:]
		}
	case packedFixed32:
		if len(val)%4 != 0 {
			return errPackedList
		}
	case packedFixed64:
		if len(val)%8 != 0 {
			return errPackedList
		}
	}
	return nil
}
