package admin

import (
	"bytes"
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// format is an encoding of answers.
type format struct {
	contentType string
	encode      func(v any) ([]byte, error)
}

var (
	jsonFormat = &format{"application/json", indentedJSON}
	yamlFormat = &format{"application/yaml", asYAML}
)

// formats are the values of ?format=.
var formats = map[string]*format{"": jsonFormat, "json": jsonFormat, "yaml": yamlFormat}

// failure is the answer to a request that cannot be answered.
type failure struct {
	Error string `json:"error"`
}

func fail(status int, message string) (int, any) { return status, failure{message} }

// answer is an encoded answer.
type answer struct {
	status int
	as     *format
	body   []byte
}

// encode encodes a whole answer before anything is sent, so that an encoding error still changes
// the status. f is nil for an unknown format.
func (s *Server) encode(f *format, status int, v any) answer {
	if f == nil {
		f = jsonFormat
	}
	b, err := f.encode(v)
	if err != nil {
		s.opts.Log.Error("cannot encode an admin answer", "error", err)
		return answer{http.StatusInternalServerError, jsonFormat, []byte(`{"error": "the relay cannot encode the answer"}` + "\n")}
	}
	return answer{status, f, b}
}

func (s *Server) send(w http.ResponseWriter, a answer) {
	h := w.Header()
	h.Set("Content-Type", a.as.contentType)
	h.Set("Content-Length", strconv.Itoa(len(a.body)))
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // an error means that the client has gone
}

// write encodes and sends. Use it for answers that cost little.
func (s *Server) write(w http.ResponseWriter, f *format, status int, v any) {
	s.send(w, s.encode(f, status, v))
}

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

// marshal is json.Marshal, but keeps <, > and & readable.
func marshal(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func indentedJSON(v any) ([]byte, error) {
	if p, ok := v.(page); ok {
		if b, long := p.lines(); long {
			return b, nil
		}
	}
	b, err := marshal(v, "")
	if err != nil || indentedSize(b, 0) > maxIndented {
		return b, err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, b, "", "  "); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// YAML encodes v as ?format=yaml does: with the names and the order that it has as JSON.
func YAML(v any) ([]byte, error) { return asYAML(v) }

// asYAML encodes v by way of JSON, so that both have the same names in the same order. If YAML
// would be much larger, because the value is nested deeply, it returns the JSON, which is YAML too.
func asYAML(v any) ([]byte, error) {
	j, err := marshal(v, "")
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
	return b.Bytes(), enc.Close()
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
