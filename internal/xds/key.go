package xds

import (
	"encoding/binary"
	"strconv"
	"strings"
)

// Key is an aggregation key: a list of elements as one comparable value. Two keys are equal if and
// only if their lists of elements are equal: [a_b, c] differs from [a, b_c]. The zero Key has no
// elements, and no node has it.
type Key struct {
	// enc is the concatenation of all elements. Each element follows its length, a uvarint.
	enc string
}

// NewKey returns the key of these elements.
func NewKey(elements ...string) Key {
	var b []byte
	for _, e := range elements {
		b = binary.AppendUvarint(b, uint64(len(e)))
		b = append(b, e...)
	}
	return Key{enc: string(b)}
}

// IsZero reports whether k has no elements.
func (k Key) IsZero() bool { return k.enc == "" }

// Elements returns the key's elements in a new slice.
func (k Key) Elements() []string {
	var out []string
	for rest := k.enc; rest != ""; {
		n, w := binary.Uvarint([]byte(rest[:min(len(rest), binary.MaxVarintLen64)]))
		out = append(out, rest[w:w+int(n)])
		rest = rest[w+int(n):]
	}
	return out
}

// String returns the key in readable form: its elements joined by "/". It quotes an element that is
// empty or has a character other than letters, digits and "-._:@". Different keys have different
// strings; ParseKey is the inverse.
func (k Key) String() string {
	var b strings.Builder
	for i, e := range k.Elements() {
		if i > 0 {
			b.WriteByte('/')
		}
		if isUnquoted(e) {
			b.WriteString(e)
		} else {
			b.WriteString(strconv.Quote(e))
		}
	}
	return b.String()
}

// ParseKey parses what String returned. It returns false for anything else.
func ParseKey(s string) (Key, bool) {
	if s == "" {
		return Key{}, false
	}
	whole := s
	var elements []string
	for {
		var e string
		if strings.HasPrefix(s, `"`) {
			q, err := strconv.QuotedPrefix(s)
			if err != nil {
				return Key{}, false
			}
			if e, err = strconv.Unquote(q); err != nil {
				return Key{}, false
			}
			s = s[len(q):]
		} else {
			end := strings.IndexByte(s, '/')
			if end < 0 {
				end = len(s)
			}
			e, s = s[:end], s[end:]
			if !isUnquoted(e) {
				return Key{}, false
			}
		}
		elements = append(elements, e)
		if s == "" {
			k := NewKey(elements...)
			return k, k.String() == whole
		}
		if s[0] != '/' {
			return Key{}, false
		}
		s = s[1:]
	}
}

func isUnquoted(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte("-._:@", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}
