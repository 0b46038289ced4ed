package redact

import "strings"

// Value redacts a value with the types of JSON. name is its name or path, such as
// node.metadata["token"].
func Value(name string, v any) any {
	for part := range strings.FieldsFuncSeq(name, func(r rune) bool { return strings.ContainsRune(`.[]"' `, r) }) {
		if Suspicious(part) {
			return all(v)
		}
	}
	switch v := v.(type) {
	case string:
		return Text(v)
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = Value("", e)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		key, _ := v["key"].(string)
		called, _ := v["name"].(string)
		pair := Suspicious(key) || Suspicious(called)
		for k, e := range v {
			if pair && isContent(k) {
				e = all(e)
			}
			out[Text(k)] = Value(k, e)
		}
		return out
	}
	return v
}

// all hides any value except true, false and nil.
func all(v any) any {
	switch v.(type) {
	case nil, bool:
		return v
	}
	return Hidden
}
