package jsonyaml

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// maxIndented bounds an indented answer, in bytes. Larger ones are not read by eye. Indentation
// grows with the square of the depth, so it would multiply the size of deeply nested resources.
const maxIndented = 256 << 10

// indentedSize estimates the size of compact JSON when it is indented, starting at a depth. It is
// never too low.
func indentedSize(b []byte, depth int) int {
	size, text := 0, false
	for i := 0; i < len(b); i++ {
		size++
		switch c := b[i]; {
		case text && c == '\\':
			size++
			i++
		case c == '"':
			text = !text
		case text:
		case c == '{', c == '[':
			depth++
			size += 1 + 2*depth
		case c == '}', c == ']':
			depth--
			size += 1 + 2*depth
		case c == ',':
			size += 1 + 2*depth
		case c == ':':
			size++
		}
	}
	return size
}

// JSON is json.Marshal with a newline at the end, but keeps <, > and & readable, and escapes what
// Hidden reports.
func JSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return escape(b.Bytes()), nil
}

// Hidden reports whether a terminal may interpret r or show nothing for it: control characters, format
// characters such as U+202E, which changes the direction of text, and the separators U+2028 and
// U+2029.
func Hidden(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) }

// Visible returns text of clients and origins as people can read it. It escapes each character that Hidden
// reports, as Go does (\n, \u202e), and quotes a text of nothing but white space. The page has the same function.
func Visible(s string) string {
	if s != "" && strings.TrimSpace(s) == "" {
		return strconv.Quote(s)
	}
	if strings.IndexFunc(s, Hidden) < 0 {
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	var b strings.Builder
	for _, r := range s {
		if Hidden(r) {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// escape escapes what Hidden reports in the strings of JSON or YAML. JSON has escaped the characters
// below U+007F. Those above U+FFFF stay, because JSON and YAML escape them differently.
func escape(b []byte) []byte {
	hidden := func(r rune) bool { return r >= 0x7f && r <= 0xffff && Hidden(r) }
	if bytes.IndexFunc(b, hidden) < 0 {
		return b
	}
	var out []byte
	for _, r := range string(b) {
		if hidden(r) {
			out = fmt.Appendf(out, `\u%04x`, r)
		} else {
			out = utf8.AppendRune(out, r)
		}
	}
	return out
}

// Indented is JSON with indentation, unless that would be large.
func Indented(v any) ([]byte, error) {
	b, err := JSON(v)
	if err != nil || indentedSize(b, 0) > maxIndented {
		return b, err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, b, "", "  "); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// YAML encodes v by way of JSON, so that both have the same names in the same order. If YAML
// would be much larger, because the value is nested deeply, it returns the JSON, which is YAML too.
func YAML(v any) ([]byte, error) {
	j, err := JSON(v)
	if err != nil || indentedSize(j, 0) > maxIndented+8*len(j) {
		return j, err
	}
	dec := json.NewDecoder(bytes.NewReader(j))
	dec.UseNumber()
	n, err := yamlNode(dec)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(n); err != nil {
		return nil, err
	}
	return escape(b.Bytes()), enc.Close()
}

// yamlNode reads the next JSON value. yaml's own parser would not do, because it takes no key over
// 1024 bytes.
func yamlNode(dec *json.Decoder) (*yaml.Node, error) {
	t, err := dec.Token()
	if err != nil {
		return nil, err
	}
	scalar := func(tag, value string) (*yaml.Node, error) {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value}, nil
	}
	switch t := t.(type) {
	case string:
		return text(t), nil
	case json.Number:
		if strings.ContainsAny(t.String(), ".eE") {
			return scalar("!!float", t.String())
		}
		return scalar("!!int", t.String())
	case bool:
		return scalar("!!bool", strconv.FormatBool(t))
	case json.Delim:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		if t == '{' {
			n.Kind = yaml.MappingNode
		}
		for dec.More() {
			part, err := yamlNode(dec)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, part)
		}
		if len(n.Content) == 0 {
			n.Style = yaml.FlowStyle
		}
		_, err := dec.Token() // the closing delimiter
		return n, err
	}
	return scalar("!!null", "null")
}

// text is a string, quoted unless every version of YAML reads it as a string. Most names, types and
// versions need no quotes.
func text(s string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
	if !plainText.MatchString(s) || notText[strings.ToLower(s)] {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

// plainText matches strings that cannot be read as a number or as YAML syntax. notText has those
// that may still be read as booleans or null.
var plainText = regexp.MustCompile(`^[A-Za-z_/]([A-Za-z0-9_./:@|~=+-]*[A-Za-z0-9_./@|~=+-])?$`)

var notText = map[string]bool{"y": true, "n": true, "yes": true, "no": true, "on": true, "off": true, "true": true, "false": true, "null": true}
