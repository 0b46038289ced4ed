package upstream

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"xdsrelay/config"
)

// placed is a fault at a line of a file; 0 if nobody knows the line.
type placed struct {
	line int
	err  error
}

func (p *placed) Error() string { return p.err.Error() }
func (p *placed) Unwrap() error { return p.err }

func at(line int, format string, args ...any) error {
	return &placed{line, fmt.Errorf(format, args...)}
}

// YAML becomes JSON that is read as JSON files are. It is made from the node
// tree and not from Go values: those would lose lines, duplicate keys, and what
// is written like a date.

// A YAML file's aliases may not make more of it than this, in JSON.
const (
	maxYAMLBytes = 16 << 20
	maxYAMLDepth = 1000
)

// document is one document of a YAML file as JSON, with the YAML line of each
// line of it.
type document struct {
	json  []byte
	lines []int
}

// line returns the YAML line of a line of the JSON, counted from 1.
func (d *document) line(n int) int {
	if n < 1 || n > len(d.lines) {
		return 0
	}
	return d.lines[n-1]
}

// yamlDocuments reads all documents that are not empty.
func yamlDocuments(raw []byte) ([]*document, error) {
	var out []*document
	d := yaml.NewDecoder(bytes.NewReader(raw))
	for {
		var doc yaml.Node
		err := d.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			line, reason := config.Syntax(raw, err)
			return nil, at(line, "%s", reason)
		}
		if len(doc.Content) != 1 || doc.Content[0].ShortTag() == "!!null" {
			continue
		}
		w := yamlWriter{limit: max(maxYAMLBytes, 4*len(raw))}
		if err := w.node(doc.Content[0]); err != nil {
			return nil, err
		}
		out = append(out, &w.document)
	}
}

// yamlWriter writes a node tree as JSON, beginning a line wherever that of the
// YAML changes.
type yamlWriter struct {
	document
	limit  int
	depth  int
	merged int // fields that were looked at for merging
}

// token writes what stands on a line of the YAML; glue what comes behind it.
func (w *yamlWriter) token(line int, s string) {
	if n := len(w.lines); n == 0 || w.lines[n-1] != line {
		if n > 0 {
			w.glue("\n")
		}
		w.lines = append(w.lines, line)
	}
	w.glue(s)
}

func (w *yamlWriter) glue(s string) { w.json = append(w.json, s...) }

// node writes n. What an alias stands for has the lines of the anchor.
func (w *yamlWriter) node(n *yaml.Node) error {
	// The depth bounds an alias within its own anchor as well.
	if w.depth++; w.depth > maxYAMLDepth {
		return at(n.Line, "nested deeper than %d", maxYAMLDepth)
	}
	defer func() { w.depth-- }()
	if len(w.json) > w.limit {
		return at(n.Line, "aliases make more than %d bytes of the file", w.limit)
	}
	switch n.Kind {
	case yaml.AliasNode:
		return w.node(n.Alias)
	case yaml.SequenceNode:
		w.token(n.Line, "[")
		for i, c := range n.Content {
			if i > 0 {
				w.glue(",")
			}
			if err := w.node(c); err != nil {
				return err
			}
		}
		w.glue("]")
		return nil
	case yaml.MappingNode:
		fields, err := w.fields(n, 0)
		if err != nil {
			return err
		}
		w.token(n.Line, "{")
		for i, f := range fields {
			if i > 0 {
				w.glue(",")
			}
			w.token(f.key.Line, quote(f.name)+":")
			if err := w.node(f.value); err != nil {
				return err
			}
		}
		w.glue("}")
		return nil
	case yaml.ScalarNode:
		s, err := yamlScalar(n)
		if err != nil {
			return err
		}
		w.token(n.Line, s)
		return nil
	}
	return at(n.Line, "neither scalar, list nor mapping")
}

type yamlField struct {
	name       string
	key, value *yaml.Node
}

// fields returns a mapping's fields, those merged in ("<<") after its own
// and only where it has none of the name. Duplicates stay, for protojson to
// refuse.
func (w *yamlWriter) fields(n *yaml.Node, depth int) ([]yamlField, error) {
	if depth > 0 {
		w.merged += 1 + len(n.Content)
	}
	if depth > maxYAMLDepth || w.merged > w.limit/16 {
		return nil, at(n.Line, "merges make too much of the file")
	}
	var out []yamlField
	var merges []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := follow(n.Content[i]), n.Content[i+1]
		switch {
		case key.ShortTag() == "!!merge":
			if value = follow(value); value.Kind == yaml.SequenceNode {
				merges = append(merges, value.Content...)
			} else {
				merges = append(merges, value)
			}
		case key.Kind != yaml.ScalarNode:
			return nil, at(n.Content[i].Line, "a key that is no string")
		default:
			out = append(out, yamlField{key.Value, n.Content[i], value})
		}
	}
	if len(merges) == 0 {
		return out, nil
	}
	has := make(map[string]bool, len(out))
	for _, f := range out {
		has[f.name] = true
	}
	for _, m := range merges {
		m = follow(m)
		if m.Kind != yaml.MappingNode {
			return nil, at(n.Line, "what is merged is no mapping")
		}
		fields, err := w.fields(m, depth+1)
		if err != nil {
			return nil, err
		}
		for _, f := range fields {
			if !has[f.name] {
				has[f.name] = true
				out = append(out, f)
			}
		}
	}
	return out, nil
}

func follow(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// yamlScalar is a scalar in JSON. A date is the text that it was written as.
func yamlScalar(n *yaml.Node) (string, error) {
	switch tag := n.ShortTag(); tag {
	case "!!null":
		return "null", nil
	case "!!str", "!!timestamp":
		return quote(n.Value), nil
	case "!!binary":
		return quote(strings.Join(strings.Fields(n.Value), "")), nil
	case "!!bool", "!!int", "!!float":
		var v any
		if err := n.Decode(&v); err != nil {
			return "", at(n.Line, "%q: not of the kind %s", n.Value, tag)
		}
		switch v := v.(type) {
		case float64:
			switch {
			case math.IsNaN(v):
				return `"NaN"`, nil
			case math.IsInf(v, 1):
				return `"Infinity"`, nil
			case math.IsInf(v, -1):
				return `"-Infinity"`, nil
			}
			return strconv.FormatFloat(v, 'g', -1, 64), nil
		case bool, int, int64, uint64:
			return fmt.Sprint(v), nil
		}
		return "", at(n.Line, "%q: not of the kind %s", n.Value, tag)
	default:
		return "", at(n.Line, "tag %s", tag)
	}
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil { // never for a string
		panic(err)
	}
	return string(b)
}
