package redact

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
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

// namedValue matches a name and its value: a quoted literal behind the name, as in api_key = "a",
// add("authorization", "a") or get("cookie") ~= "a", or the rest of a line that begins with the name, as
// in YAML.
var namedValue = regexp.MustCompile(`(?m)([\w.-]+)["'\])]*[ \t]*(?:[:,]|[=~!]?=)[ \t]*("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|` +
	`^[ \t-]*([\w.-]+)(?::[ \t]+|=)([^\s"'|>].*)$`)

// namedValues hides the values in s that have the name of a secret.
func (h *hider) namedValues(s string) string {
	if !strings.ContainsAny(s, `"'=`) && !strings.Contains(s, ": ") {
		return s
	}
	var out strings.Builder
	end := 0
	for _, at := range namedValue.FindAllStringSubmatchIndex(s, -1) {
		name, value := at[2:4], at[4:6]
		if at[2] < 0 {
			name, value = at[6:8], at[8:10]
		}
		if !Suspicious(s[name[0]:name[1]]) {
			continue
		}
		literal := s[value[0]:value[1]]
		quote := literal[:1]
		if at[2] < 0 {
			quote = ""
		}
		h.remember(literal[len(quote) : len(literal)-len(quote)])
		out.WriteString(s[end:value[0]] + quote + Hidden + quote)
		end = value[1]
	}
	return out.String() + s[end:]
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
