package config

import (
	"fmt"
	"reflect"
	"slices"
)

// Diff returns the keys whose values differ between two configurations, in the
// file's order. Of a list whose length is another it is the list, else what differs
// in it. What a file that is named holds is not looked at.
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

// Keys returns all keys of the file that are no sections, in its order.
func Keys() []string {
	var out []string
	for _, l := range leaves() {
		out = append(out, l.key)
	}
	return out
}

// Files returns the files that the configuration names, each once.
func (c *Config) Files() []string {
	var out []string
	for _, p := range c.paths() {
		if *p.path != "" && !p.dir && !slices.Contains(out, *p.path) {
			out = append(out, *p.path)
		}
	}
	return out
}
