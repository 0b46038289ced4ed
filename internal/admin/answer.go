package admin

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
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
	return marshal(v, "  ")
}

// YAML writes v as ?format=yaml does: with the names that it has as JSON, in the same
// order.
func YAML(v any) ([]byte, error) { return asYAML(v) }

// asYAML writes what JSON would have, so that both have the same names, and in
// the same order.
func asYAML(v any) ([]byte, error) {
	j, err := marshal(v, "")
	if err != nil {
		return nil, err
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

// text is a string, quoted unless every reader of YAML takes it for one.
func text(s string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s, Style: yaml.DoubleQuotedStyle}
	switch s {
	case "", "y", "n", "yes", "no", "on", "off", "true", "false", "null":
		return n
	}
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && c != '_' {
			return n
		}
	}
	n.Style = 0
	return n
}
