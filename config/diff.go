package config

import (
	"fmt"
	"reflect"
	"slices"
)

// Diff returns the keys with different values, in the file's order. For lists of different lengths
// it is the list's key, otherwise the keys of the differing elements. It does not compare the
// content of named files.
func Diff(a, b *Config) []string {
	var out []string
	var walk func(a, b reflect.Value, key string)
	walk = func(a, b reflect.Value, key string) {
		switch {
		case a.Kind() == reflect.Struct:
			for i := range a.NumField() {
				if name := a.Type().Field(i).Tag.Get("yaml"); name != "" && name != "-" {
					walk(a.Field(i), b.Field(i), join(key, name))
				}
			}
		case a.Kind() == reflect.Slice && a.Len() == b.Len() && a.Type().Elem().Kind() == reflect.Struct:
			for i := range a.Len() {
				walk(a.Index(i), b.Index(i), fmt.Sprintf("%s[%d]", key, i))
			}
		case a.Kind() == reflect.Slice && a.Len() == 0 && b.Len() == 0: // nil or not
		case !reflect.DeepEqual(a.Interface(), b.Interface()):
			out = append(out, key)
		}
	}
	walk(reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem(), "")
	return out
}

// Files returns the files that the configuration names, without repetitions.
func (c *Config) Files() []string {
	var out []string
	for _, p := range c.paths() {
		if *p.path != "" && !p.dir && !slices.Contains(out, *p.path) {
			out = append(out, *p.path)
		}
	}
	return out
}
