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

// format is a way to write answers.
type format struct {
	contentType string
	encode      func(v any) ([]byte, error)
}

var (
	jsonFormat = &format{"application/json", indentedJSON}
	yamlFormat = &format{"application/yaml", asYAML}
)

// formats by what ?format= says.
var formats = map[string]*format{"": jsonFormat, "json": jsonFormat, "yaml": yamlFormat}

// failure is the answer to a request that has none.
type failure struct {
	Error string `json:"error"`
}

func fail(status int, message string) (int, any) { return status, failure{message} }

// answer is what is to be sent.
type answer struct {
	status int
	as     *format
	body   []byte
}

// encode writes an answer down, all of it, so that a failure has its status; f is
// nil where the format is not known.
func (s *Server) encode(f *format, status int, v any) answer {
	if f == nil {
		f = jsonFormat
	}
	b, err := f.encode(v)
	if err != nil {
		s.opts.Log.Error("admin: answer cannot be written", "error", err)
		return answer{http.StatusInternalServerError, jsonFormat, []byte(`{"error": "the answer cannot be written"}` + "\n")}
	}
	return answer{status, f, b}
}

func (s *Server) send(w http.ResponseWriter, a answer) {
	h := w.Header()
	h.Set("Content-Type", a.as.contentType)
	h.Set("Content-Length", strconv.Itoa(len(a.body)))
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // who hung up wants no answer
}

// write is both, of what costs nothing.
func (s *Server) write(w http.ResponseWriter, f *format, status int, v any) {
	s.send(w, s.encode(f, status, v))
}

// maxIndented is how large an answer may be when it is indented, in bytes. What is larger
// nobody reads by eye, and resources that are nested deeply would be many times as large
// as they are: indentation grows with the square of the depth.
const maxIndented = 256 << 10

// indentedSize is about how many bytes JSON without blanks has when it is indented, at
// some depth; never less.
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

// YAML writes v as ?format=yaml does: with the names that it has as JSON, in the same
// order.
func YAML(v any) ([]byte, error) { return asYAML(v) }

// asYAML writes what JSON would have, so that both have the same names, and in
// the same order. What is nested so deeply that YAML would be many times as large is
// written as JSON, which is YAML too.
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

// yamlNode reads the next JSON value. JSON is a part of YAML, but not of
// yaml.v3's parser, which takes no key over 1024 bytes.
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
		_, err := dec.Token() // the end
		return n, err
	}
	return scalar("!!null", "null")
}

// text is a string, quoted unless every reader of YAML, of whichever version, takes it for
// one: names, types and versions mostly are plain.
func text(s string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
	if !plainText.MatchString(s) || notText[strings.ToLower(s)] {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

// plainText begins with what begins nothing else, neither a number nor a sign.
var plainText = regexp.MustCompile(`^[A-Za-z_/]([A-Za-z0-9_./:@|~=+-]*[A-Za-z0-9_./@|~=+-])?$`)

var notText = map[string]bool{"y": true, "n": true, "yes": true, "no": true, "on": true, "off": true, "true": true, "false": true, "null": true}
