package xds

import (
	"errors"
	"sync"
	"unicode/utf8"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// A message is well-formed if it can be decoded. To see that, it is not decoded: a node of
// a megabyte would be garbage of fifty.

// wireForm is that of a message, as far as what it may hold can be malformed.
type wireForm struct {
	fields map[protowire.Number]wireField
	low    [32]wireField // of small numbers
}

type wireField struct {
	is wireKind
	of *wireForm // of a message
}

type wireKind uint8

const (
	anything wireKind = iota // any value, and what nobody knows
	text
	message
	varints // packed
	fixed32s
	fixed64s
)

// maxNested is how deep messages may be nested in each other, as where they are decoded.
const maxNested = protowire.DefaultRecursionLimit

var nodeForm = sync.OnceValue(func() *wireForm {
	return formOf((*corev3.Node)(nil).ProtoReflect().Descriptor(), make(map[protoreflect.FullName]*wireForm))
})

// formOf makes the form of a message, and of those in it that are not yet in known.
func formOf(d protoreflect.MessageDescriptor, known map[protoreflect.FullName]*wireForm) *wireForm {
	if f := known[d.FullName()]; f != nil {
		return f
	}
	f := &wireForm{fields: make(map[protowire.Number]wireField)}
	known[d.FullName()] = f
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		var w wireField
		switch k := fd.Kind(); {
		case k == protoreflect.MessageKind:
			w = wireField{message, formOf(fd.Message(), known)}
		case k == protoreflect.StringKind:
			w.is = text
		case !fd.IsList() || k == protoreflect.BytesKind:
			continue
		case k == protoreflect.Fixed32Kind || k == protoreflect.Sfixed32Kind || k == protoreflect.FloatKind:
			w.is = fixed32s
		case k == protoreflect.Fixed64Kind || k == protoreflect.Sfixed64Kind || k == protoreflect.DoubleKind:
			w.is = fixed64s
		default:
			w.is = varints
		}
		f.fields[fd.Number()] = w
		if int(fd.Number()) < len(f.low) {
			f.low[fd.Number()] = w
		}
	}
	return f
}

var (
	errText   = errors.New("a string is no UTF-8")
	errNested = errors.New("messages are nested too deep")
	errNumber = errors.New("a field has no valid number")
	errPacked = errors.New("a list ends within a number")
)

// wellFormed says why a message of this form cannot be decoded; nil: it can.
func wellFormed(f *wireForm, b []byte, nested int) error {
	if nested--; nested < 0 {
		return errNested
	}
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return wireError(n)
		}
		if num > protowire.MaxValidNumber {
			return errNumber
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
		var w wireField
		if int(num) < len(f.low) {
			w = f.low[num]
		} else {
			w = f.fields[num]
		}
		if err := w.holds(val, nested); err != nil {
			return err
		}
	}
	return nil
}

func (w *wireField) holds(val []byte, nested int) error {
	switch w.is {
	case text:
		if !utf8.Valid(val) {
			return errText
		}
	case message:
		return wellFormed(w.of, val, nested)
	case varints:
		for len(val) > 0 {
			_, n := protowire.ConsumeVarint(val)
			if n < 0 {
				return wireError(n)
			}
			val = val[n:]
		}
	case fixed32s:
		if len(val)%4 != 0 {
			return errPacked
		}
	case fixed64s:
		if len(val)%8 != 0 {
			return errPacked
		}
	}
	return nil
}
