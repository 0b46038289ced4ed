package config

import (
	"bytes"
	"encoding"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"strings"
	"time"

	"xdsrelay/internal/spelling"

	"go.yaml.in/yaml/v3"
)

// Decode decodes a YAML file into the struct or slice that into points to. Field names are the yaml
// tags. It returns all unknown, duplicate and wrongly typed keys as Faults. A key without a value
// counts as left out. Places and Faults have keys below key, which is empty for a whole file.
func Decode(file string, src []byte, key string, into any) (*Places, error) {
	d := decoder{file: file, src: src, places: newPlaces(file)}
	d.run(reflect.ValueOf(into).Elem(), key)
	return d.places, d.faults.Err()
}

// DecodeProto is Decode for files with the schema of a protobuf message: fields may also have their
// JSON names (andMatch for and_match).
func DecodeProto(file string, src []byte, into any) (*Places, error) {
	d := decoder{file: file, src: src, places: newPlaces(file), camel: true}
	d.run(reflect.ValueOf(into).Elem(), "")
	return d.places, d.faults.Err()
}

// Bounds of a file, with aliases expanded. A legitimate file is far below.
const (
	maxDepth = 100
	maxNodes = 1 << 15
)

// decoder fills Go values from a tree of YAML nodes.
type decoder struct {
	file     string
	src      []byte
	text     string          // src, which the places share
	camel    bool            // also accept lowerCamel names
	depth    int             // of the present node; aliases can make it infinite
	nodes    int             // so far
	tooLarge bool            // maxDepth or maxNodes is exceeded
	lines    []int           // offset of each line
	reserved map[string]bool // keys without indices: "upstream.origins[].variant"
	places   *Places
	faults   Faults
	fields   map[reflect.Type]map[string]int // cache of fieldsOf
	// leaf, if set, is called for each value that is no struct, at the top level or in structs
	// only.
	leaf func(key string, v reflect.Value)
}

// run decodes the text into v. key is the value's key.
func (d *decoder) run(v reflect.Value, key string) {
	dec := yaml.NewDecoder(bytes.NewReader(d.src))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if !errors.Is(err, io.EOF) {
			d.syntax(err)
		}
		return
	}
	if err := dec.Decode(&more); err == nil {
		d.fault(&more, "", "the file has a second YAML document, but must have only one")
	} else if !errors.Is(err, io.EOF) {
		d.syntax(err)
		return
	}
	d.text = string(d.src)
	for i := range d.src {
		if i == 0 || d.src[i-1] == '\n' {
			d.lines = append(d.lines, i)
		}
	}
	d.value(doc.Content[0], v, key, d.leaf != nil)
}

func (d *decoder) syntax(err error) {
	line, reason := Syntax(d.src, err)
	d.faults = append(d.faults, Fault{Pos: Pos{File: d.file, Line: line}, Reason: reason})
}

func (d *decoder) fault(n *yaml.Node, key, format string, args ...any) {
	d.faults = append(d.faults, Fault{Pos: d.pos(n), Key: key, Reason: fmt.Sprintf(format, args...)})
}

func (d *decoder) pos(n *yaml.Node) Pos { return Pos{File: d.file, Line: n.Line, Column: n.Column} }

var (
	durationType = reflect.TypeFor[time.Duration]()
	stringsType  = reflect.TypeFor[Strings]()
	textType     = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// value decodes n into v. top: leaf has to be called.
func (d *decoder) value(n *yaml.Node, v reflect.Value, key string, top bool) {
	d.depth++
	defer func() { d.depth-- }()
	if d.nodes++; d.depth > maxDepth || d.nodes > maxNodes {
		if !d.tooLarge {
			d.fault(n, key, "is nested too deep, or has too many values")
			d.tooLarge = true
		}
		d.nodes = maxNodes // stops decoding
		return
	}
	at := n
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return
	}
	pl := place{Pos: Pos{File: d.file, Line: at.Line, Column: at.Column}}
	if at.Kind == yaml.ScalarNode && at.Line <= len(d.lines) {
		pl.src, pl.style = d.text[d.lines[at.Line-1]:], at.Style
	}
	d.places.at[key] = pl

	was := len(d.faults)
	switch {
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(n, v.Elem(), key, top)
		return
	case v.Kind() == reflect.Struct:
		d.mapping(n, v, key, top)
		return
	case v.Addr().Type().Implements(textType):
		d.scan(n, at, v, key)
	case v.Kind() == reflect.Slice:
		if v.Type() == stringsType && n.Kind == yaml.ScalarNode {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			d.value(at, v.Index(0), key+"[0]", false)
			break
		}
		d.sequence(n, v, key)
	default:
		d.scalar(n, at, v, key)
	}
	// A list with faults still has elements to check.
	if top && (len(d.faults) == was || v.Kind() == reflect.Slice && v.Len() > 0) {
		d.leaf(key, v)
	}
}

// mapping decodes a mapping into the struct v.
func (d *decoder) mapping(n *yaml.Node, v reflect.Value, key string, top bool) {
	if n.Kind != yaml.MappingNode {
		d.fault(n, key, "must be a mapping, but is %s", kindOf(n))
		return
	}
	fields := d.fieldsOf(v.Type())
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, val := n.Content[i], n.Content[i+1]
		if k.Kind != yaml.ScalarNode || k.ShortTag() == "!!merge" {
			d.fault(k, key, "each key must be a plain name; merge keys (<<) are not supported")
			continue
		}
		name := k.Value
		if _, ok := fields[name]; !ok && d.camel {
			name = snake(name)
		}
		sub := join(key, name)
		if line, ok := seen[name]; ok {
			d.fault(k, sub, "duplicate key; line %d has it already", line)
			continue
		}
		seen[name] = k.Line
		if d.reserved[noIndices(sub)] {
			d.fault(k, sub, "is not supported yet; the name is reserved")
			continue
		}
		f, ok := fields[name]
		if !ok && d.reserved != nil && removed[sub] {
			d.places.removed = append(d.places.removed, Fault{Pos: d.pos(k), Key: sub, Reason: "is ignored: the key was removed, and is an error in the next version"})
			continue
		}
		if !ok {
			near := spelling.Nearest(name, maps.Keys(fields))
			if near == "" {
				d.fault(k, sub, "unknown key")
				continue
			}
			d.fault(k, sub, "unknown key; did you mean %s?", near)
			d.faults[len(d.faults)-1].meant = join(key, near)
			continue
		}
		d.value(val, v.Field(f), sub, top)
	}
}

// fieldsOf returns the fields of a struct by their names in YAML.
func (d *decoder) fieldsOf(t reflect.Type) map[string]int {
	if fields, ok := d.fields[t]; ok {
		return fields
	}
	fields := map[string]int{}
	for i := range t.NumField() {
		if name := t.Field(i).Tag.Get("yaml"); name != "" && name != "-" {
			fields[name] = i
		}
	}
	if d.fields == nil {
		d.fields = map[reflect.Type]map[string]int{}
	}
	d.fields[t] = fields
	return fields
}

func (d *decoder) sequence(n *yaml.Node, v reflect.Value, key string) {
	if n.Kind != yaml.SequenceNode {
		d.fault(n, key, "must be a list, but is %s", kindOf(n))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, e := range n.Content {
		sub := fmt.Sprintf("%s[%d]", key, i)
		if e.Kind == yaml.ScalarNode && e.ShortTag() == "!!null" {
			d.fault(e, sub, "the element has no value")
			continue
		}
		d.value(e, v.Index(i), sub, false)
	}
}

// scalar decodes a string, number, bool or duration.
func (d *decoder) scalar(n, at *yaml.Node, v reflect.Value, key string) {
	if n.Kind != yaml.ScalarNode {
		help := ""
		if n.Kind == yaml.MappingNode && v.Kind() == reflect.String {
			help = "; put a text with a colon in quotes"
		}
		d.fault(at, key, "must be %s, but is %s%s", wants(v.Type()), kindOf(n), help)
		return
	}
	tag := n.ShortTag()
	switch {
	case v.Type() == durationType && (tag == "!!str" || tag == "!!int" && n.Value == "0"):
	case v.Type() == durationType && tag == "!!int":
		d.fault(at, key, "must be a duration with a unit, such as %ss", n.Value)
		return
	case fits(v, tag):
	case v.Kind() == reflect.String:
		d.fault(at, key, "must be a string, but is %s; put it in quotes", kindOf(n))
		return
	default:
		d.fault(at, key, "must be %s, but is %s", wants(v.Type()), kindOf(n))
		return
	}
	if v.Type() == durationType || v.Kind() == reflect.String {
		if err := setText(v, n.Value); err != nil {
			d.fault(at, key, "%v", err)
		}
		return
	}
	if err := n.Decode(v.Addr().Interface()); err != nil {
		d.fault(at, key, "must be %s, but is %q", wants(v.Type()), n.Value)
	}
}

// fits reports whether a YAML scalar with this tag can be the value of v, except durations.
func fits(v reflect.Value, tag string) bool {
	return v.Kind() == reflect.String && tag == "!!str" ||
		v.Kind() == reflect.Bool && tag == "!!bool" ||
		v.CanInt() && tag == "!!int" ||
		v.CanFloat() && (tag == "!!float" || tag == "!!int")
}

// scan decodes a scalar by the value's UnmarshalText.
func (d *decoder) scan(n, at *yaml.Node, v reflect.Value, key string) {
	if n.Kind != yaml.ScalarNode {
		d.fault(at, key, "must be one value, but is %s", kindOf(n))
		return
	}
	// The caller has checked that v has the method.
	if err := v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(n.Value)); err != nil {
		d.fault(at, key, "%v", err)
	}
}

// setText sets a scalar from the text of a variable or flag. Numbers and booleans are read as in a
// file, so that 010000 is the same number everywhere. Durations and strings need no quotes.
func setText(v reflect.Value, s string) error {
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(s))
	}
	switch {
	case v.Type() == durationType:
		t, err := time.ParseDuration(s)
		if err != nil {
			return fmt.Errorf("must be a duration such as 30s, but is %q", s)
		}
		v.SetInt(int64(t))
	case v.Kind() == reflect.String:
		v.SetString(s)
	default:
		var doc yaml.Node
		err := yaml.Unmarshal([]byte(s), &doc)
		if err != nil || len(doc.Content) != 1 || !fits(v, doc.Content[0].ShortTag()) || doc.Content[0].Decode(v.Addr().Interface()) != nil {
			return fmt.Errorf("must be %s, but is %q", wants(v.Type()), s)
		}
	}
	return nil
}

func join(key, name string) string {
	if key == "" {
		return name
	}
	return key + "." + name
}

// snake returns a protobuf field's name, given its JSON name.
func snake(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if 'A' <= c && c <= 'Z' {
			b.WriteByte('_')
			c += 'a' - 'A'
		}
		b.WriteByte(c)
	}
	return b.String()
}

var index = regexp.MustCompile(`\[\d+\]`)

func noIndices(key string) string { return index.ReplaceAllString(key, "[]") }

func wants(t reflect.Type) string {
	switch {
	case t == durationType:
		return "a duration such as 30s"
	case t.Kind() == reflect.String:
		return "a string"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Float64:
		return "a number"
	default:
		return "an integer"
	}
}

func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!str":
		return fmt.Sprintf("the string %q", n.Value)
	case "!!int":
		return "the integer " + n.Value
	case "!!float":
		return "the number " + n.Value
	case "!!bool":
		return n.Value
	default:
		return fmt.Sprintf("%q", n.Value)
	}
}
