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

// text is Text for a whole value, which may be JSON.
func (h *hider) text(s string, nested int) string {
	if t := strings.TrimSpace(s); nested < maxNested && t != "" && (t[0] == '{' || t[0] == '[') {
		var v any
		if json.Unmarshal([]byte(t), &v) == nil {
			if shown := h.json("", v, nested+1); !reflect.DeepEqual(shown, v) {
				if b, err := json.Marshal(shown); err == nil {
					s = string(b)
				}
			}
		}
	}
	return Text(s)
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
