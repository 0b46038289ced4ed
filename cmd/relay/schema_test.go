package main

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"xdsrelay/internal/admin"
	"xdsrelay/internal/admin/keystatus"
	"xdsrelay/internal/admin/rulestatus"
	"xdsrelay/internal/admin/sources"
	"xdsrelay/internal/explain"
	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/status"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/validation"
	"xdsrelay/internal/wait"
)

// items is a list as the admin API and the commands have it.
type items[T any] struct {
	Items []T `json:"items"`
}

// outputs has the type of each command's output with -o json.
var outputs = map[string]any{
	"diff":            items[admin.Unacknowledged]{},
	"dump":            items[admin.DumpedResource]{},
	"explain":         explain.Keys{},
	"explain-compare": explain.Comparison{},
	"explain-diff":    explain.Difference{},
	"keys":            items[keystatus.Key]{},
	"members":         items[sources.Member]{},
	"nacks":           items[admin.Nack]{},
	"origins":         items[upstream.OriginStatus]{},
	"reload":          admin.Reload{},
	"rules":           rulestatus.Report{},
	"status":          items[inspect.ClientStatus]{},
	"status-summary":  status.Summary{},
	"validate":        validation.Report{},
	"version":         buildInfo{},
	"wait":            wait.Outcome{},
}

// docs/schemas has the JSON Schema of each command's output. `make docs` sets WRITE_DOCS, with
// which the test writes the files.
func TestSchemas(t *testing.T) {
	const dir = "../../docs/schemas"
	found, err := filepath.Glob(dir + "/*.json")
	if err != nil || os.Getenv("WRITE_DOCS") == "" && len(found) != len(outputs) {
		t.Errorf("%s has %d files for %d commands: %v", dir, len(found), len(outputs), err)
	}
	for name, v := range outputs {
		schema := schemaOf(t, reflect.TypeOf(v))
		schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
		schema["title"] = "The output of relay " + strings.Replace(name, "-", " --", 1) + " -o json"
		want, err := json.MarshalIndent(schema, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, '\n')
		file := filepath.Join(dir, name+".json")
		if os.Getenv("WRITE_DOCS") != "" {
			err = os.WriteFile(file, want, 0o644)
		} else if got, e := os.ReadFile(file); e != nil || !bytes.Equal(got, want) {
			err = fmt.Errorf("%s is not the schema of the output (%v): run make docs, and mention a changed field in CHANGELOG.md", file, e)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// schemaOf returns the JSON Schema of a Go type, as encoding/json writes its values.
func schemaOf(t *testing.T, typ reflect.Type) map[string]any {
	t.Helper()
	switch {
	case typ.Kind() == reflect.Pointer:
		return schemaOf(t, typ.Elem())
	case typ == reflect.TypeFor[time.Time]():
		return map[string]any{"type": "string", "format": "date-time"}
	case typ == reflect.TypeFor[json.RawMessage](), typ.Kind() == reflect.Interface:
		return map[string]any{} // any value
	case typ.Implements(reflect.TypeFor[json.Marshaler]()), typ.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		t.Fatalf("%s has an encoding of its own", typ)
	}
	switch typ.Kind() {
	case reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(t, typ.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schemaOf(t, typ.Elem())}
	case reflect.Struct:
		properties, required := map[string]any{}, []string{}
		for _, f := range reflect.VisibleFields(typ) {
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !f.IsExported() || name == "-" || f.Anonymous && name == "" {
				continue // VisibleFields has the fields of an embedded struct too
			}
			if name == "" {
				t.Fatalf("%s.%s has no JSON name", typ, f.Name)
			}
			properties[name] = schemaOf(t, f.Type)
			// An embedded pointer may be nil.
			if optional := len(f.Index) > 1 && typ.Field(f.Index[0]).Type.Kind() == reflect.Pointer; options == "" && !optional {
				required = append(required, name)
			}
		}
		return map[string]any{"type": "object", "properties": properties, "required": required}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	}
	if !typ.ConvertibleTo(reflect.TypeFor[int64]()) {
		t.Fatalf("%s: unknown kind", typ)
	}
	return map[string]any{"type": "integer"}
}

// conforms reports where a decoded JSON value differs from a schema of schemaOf. A field that the
// schema does not have is a difference too.
func conforms(at string, schema map[string]any, v any) error {
	of := func(name string) map[string]any { m, _ := schema[name].(map[string]any); return m }
	is := schema["type"]
	wrong := is != nil
	switch v := v.(type) {
	case string:
		wrong = wrong && is != "string"
		if schema["format"] == "date-time" {
			if _, err := time.Parse(time.RFC3339Nano, v); err != nil {
				return fmt.Errorf("%s: %w", at, err)
			}
		}
	case bool:
		wrong = wrong && is != "boolean"
	case float64:
		wrong = wrong && is != "number" && (is != "integer" || v != float64(int64(v)))
	case []any:
		wrong = wrong && is != "array"
		for i := range v {
			if err := conforms(fmt.Sprintf("%s[%d]", at, i), of("items"), v[i]); err != nil && !wrong {
				return err
			}
		}
	case map[string]any:
		wrong = wrong && is != "object"
		required, _ := schema["required"].([]any)
		for _, name := range required {
			if _, has := v[name.(string)]; !has {
				return fmt.Errorf("%s: lacks %s", at, name)
			}
		}
		for name, field := range v {
			s, known := of("properties")[name].(map[string]any)
			if !known {
				if s = of("additionalProperties"); s == nil && is != nil {
					return fmt.Errorf("%s: has %s, which is not in the schema", at, name)
				}
			}
			if err := conforms(at+"."+name, s, field); err != nil && !wrong {
				return err
			}
		}
	}
	if wrong {
		return fmt.Errorf("%s: is %T, not of the type %v", at, v, is)
	}
	return nil
}
