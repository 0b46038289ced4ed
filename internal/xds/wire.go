package xds

import (
	"errors"
	"regexp"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Fields of envoy.service.discovery.v3.Resource.
const (
	resourceVersion protowire.Number = 1
	resourceBody    protowire.Number = 2
	resourceName    protowire.Number = 3
	resourceAliases protowire.Number = 4
	resourceTTL     protowire.Number = 6
)

// wrapperType is the type of an Any that wraps a Resource in SotW.
const wrapperType = "type.googleapis.com/envoy.service.discovery.v3.Resource"

// Fields of google.protobuf.Any.
const (
	anyTypeURL protowire.Number = 1
	anyValue   protowire.Number = 2
)

// Fields of DiscoveryResponse and DeltaDiscoveryResponse. Those below have the same number in both
// messages.
const (
	respVersion   protowire.Number = 1
	respResources protowire.Number = 2
	respTypeURL   protowire.Number = 4
	respNonce     protowire.Number = 5
	respRemoved   protowire.Number = 6 // delta only
)

var (
	respControlPlane = [...]protowire.Number{SotW: 6, Delta: 7}
	respErrors       = [...]protowire.Number{SotW: 7, Delta: 9}
)

// eachField calls f for each field of an encoded message. val is the field's value without its
// length, and whole is the field with its tag. It checks the framing of fields and nothing else.
// The slices alias b. It stops at the first error of f.
func eachField(b []byte, f func(num protowire.Number, typ protowire.Type, val, whole []byte) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return wireError(n)
		}
		m := protowire.ConsumeFieldValue(num, typ, b[n:])
		if m < 0 {
			return wireError(m)
		}
		val := b[n : n+m]
		if typ == protowire.BytesType {
			_, w := protowire.ConsumeVarint(val)
			val = val[w:]
		}
		if err := f(num, typ, val, b[:n+m]); err != nil {
			return err
		}
		b = b[n+m:]
	}
	return nil
}

func isUTF8(b []byte) bool { return utf8.Valid(b) }

var errUTF8 = errors.New("a string is not UTF-8")

// fieldSize returns the size of a field with a value of n bytes and a number below 16.
func fieldSize(n int) int { return 1 + protowire.SizeBytes(n) }

func appendString(b []byte, num protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
}

// protoPrefix is the prefix of protobuf's error messages. Protobuf randomly chooses a normal or a
// no-break space, so that programs do not compare messages.
var protoPrefix = regexp.MustCompile(`^proto:[\s\x{a0}]*`)

// PlainError returns an error of protobuf without its prefix, which has an invisible no-break space
// at times. It returns nil for nil.
func PlainError(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(protoPrefix.ReplaceAllString(err.Error(), ""))
}

// wireError returns the error for a negative length n from protowire.
func wireError(n int) error { return PlainError(protowire.ParseError(n)) }
