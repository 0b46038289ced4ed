package redact

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// Value redacts a value with the types of JSON. name is its name or path, such as
// node.metadata["token"].
func Value(name string, v any) any { return new(hider).json(name, v, 0) }

// json is Value of JSON inside nested strings.
func (h *hider) json(name string, v any, nested int) any {
	for part := range strings.FieldsFuncSeq(name, func(r rune) bool { return strings.ContainsRune(`.[]"' `, r) }) {
		if Suspicious(part) {
			return h.all(v)
		}
	}
	switch v := v.(type) {
	case string:
		return h.text(v, nested)
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = h.json("", e, nested)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		pair := pairs(func(name string) string { s, _ := v[name].(string); return s })
		for k, e := range v {
			if pair && isContent(k) {
				e = h.all(e)
			}
			out[Text(k)] = h.json(k, e, nested)
		}
		return out
	}
	return v
}

// maxNested bounds how deep JSON is looked at in strings of JSON.
const maxNested = 4

// text is Text for a whole value, which may be JSON, or a program or YAML with literals.
func (h *hider) text(s string, nested int) string {
	if t := strings.TrimSpace(s); nested < maxNested && t != "" && (t[0] == '{' || t[0] == '[') {
		var v any
		if json.Unmarshal([]byte(t), &v) == nil {
			if shown := h.json("", v, nested+1); !reflect.DeepEqual(shown, v) {
				if b, err := json.Marshal(shown); err == nil {
					s = string(b)
				}
			}
			return Text(s)
		}
	}
	return Text(h.namedValues(s))
}

// namedValues hides the values in s that have the name of a secret: a quoted literal behind the name,
// as in api_key = "a", add("authorization", "a") or get("cookie") ~= "a", and the rest of a line that
// begins with the name, as in YAML and NAME=value. It takes linear time.
func (h *hider) namedValues(s string) string {
	if !strings.ContainsAny(s, `"'=`) && !strings.Contains(s, ": ") {
		return s
	}
	var out strings.Builder
	for line := range strings.Lines(s) {
		if at := plainValue(line); at > 0 {
			value := strings.TrimRight(line[at:], "\r\n")
			h.remember(value)
			out.WriteString(line[:at] + Hidden + line[at+len(value):])
			continue
		}
		done := 0
		for at := range len(line) {
			if c := line[at]; at < done || c != '"' && c != '\'' || !Suspicious(nameBefore(line[:at])) {
				continue
			}
			end := at + quoted(line[at:])
			literal := strings.TrimSuffix(strings.TrimRight(line[at+1:end], "\r\n"), line[at:at+1])
			h.remember(literal)
			out.WriteString(line[done:at+1] + Hidden)
			done = at + 1 + len(literal)
		}
		out.WriteString(line[done:])
	}
	return out.String()
}

// plainValue returns where the value without quotes begins in a line that begins with the name of a
// secret; 0: there is none.
func plainValue(line string) int {
	t := strings.TrimLeft(line, " \t-")
	name := t[:len(t)-len(strings.TrimLeftFunc(t, isNamePart))]
	t = t[len(name):]
	value := strings.TrimLeft(t, ":= \t")
	if value == "" || strings.ContainsRune("\"'|>\r\n", rune(value[0])) || !strings.HasPrefix(t, "=") && !strings.HasPrefix(t, ": ") || !Suspicious(name) {
		return 0
	}
	return len(line) - len(value)
}

// nameBefore returns the name before the separator that s ends with; empty: there is none.
func nameBefore(s string) string {
	s = strings.TrimRight(s, " \t")
	name := strings.TrimRight(s, ":,=~!")
	if name == s {
		return ""
	}
	name = strings.TrimRight(name, "\"']) \t")
	return name[len(strings.TrimRightFunc(name, isNamePart)):]
}

func isNamePart(r rune) bool {
	return r == '_' || r == '.' || r == '-' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
}

// all hides any value except true, false and nil.
func (h *hider) all(v any) any {
	switch v := v.(type) {
	case nil, bool:
		return v
	case string:
		h.remember(v)
	case []any:
		for _, e := range v {
			h.all(e)
		}
	case map[string]any:
		for _, e := range v {
			h.all(e)
		}
	default:
		h.remember(fmt.Sprint(v))
	}
	return Hidden
}
