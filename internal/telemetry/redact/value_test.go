package redact

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestValue(t *testing.T) {
	for name, v := range map[string]any{
		`node.metadata["token"]`: marker,
		"node.metadata.password": map[string]any{"x": marker},
		"node.metadata":          map[string]any{"deep": []any{map[string]any{"apiKey": marker}, "Bearer " + marker}},
		"node.metadata.headers":  []any{map[string]any{"key": "x-api-key", "value": marker}},
		"node.id":                "Bearer " + marker,
	} {
		if out := fmt.Sprint(Value(name, v)); strings.Contains(out, marker) {
			t.Errorf("%s: %s", name, out)
		}
	}
	rest := map[string]any{"zone": "a", "list": []any{1.5, true, nil}, "use_token": true}
	if out := Value("node.metadata", rest); !reflect.DeepEqual(out, rest) {
		t.Errorf("%v became %v", rest, out)
	}
}
