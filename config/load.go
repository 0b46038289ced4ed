package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"strings"
	"sync"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

// DefaultFile is the default of --config.
const DefaultFile = "config/relay.yaml"

// reserved has keys of later versions. Their fault says so, since they are no typing errors.
var reserved = map[string]bool{
	"upstream.routes":            true,
	"upstream.origins[].variant": true,
	"overrides":                  true,
	"rollout":                    true,
	"store.url":                  true,
}

// removed are keys that this version ignores with a warning. The next version
// reports them as unknown.
var removed = map[string]bool{
	"upstream.absent_after": true,
}

// AddFlags adds a flag for each key that is not a section, with the key's name: --upstream.variant.
// A list is one YAML value. The flags have no text for --help, because docs/configuration.md has the
// keys. The caller adds --config, because its meaning differs between commands.
func AddFlags(fs *pflag.FlagSet) {
	for _, l := range leaves() {
		fs.String(l.key, "", "")
	}
}

// Load reads and checks the file at path, and puts the environment and then the flags of AddFlags
// over it; flags may be nil. It returns all faults as Faults; another error means that the file
// cannot be read. With Faults it also returns a configuration, unless the file has none at all. Use
// that only to find more faults.
func Load(path string, flags *pflag.FlagSet) (*Config, error) { return Loader(path, flags)() }

// Loader returns a function that is Load, and may be called again. What is no regular file, such as
// a pipe, is read once: later calls use the same text.
func Loader(path string, flags *pflag.FlagSet) func() (*Config, error) {
	read := func() ([]byte, error) { return os.ReadFile(path) }
	if !Regular(path) {
		read = sync.OnceValues(read)
	}
	return func() (*Config, error) {
		src, err := read()
		if errors.Is(err, fs.ErrNotExist) && path == DefaultFile {
			return nil, fmt.Errorf("configuration: %w; use --config for another file", err)
		}
		if err != nil {
			return nil, fmt.Errorf("configuration: %w", err)
		}
		return Parse(path, src, flags)
	}
}

// Regular reports whether path is, or leads to, a regular file.
func Regular(path string) bool {
	is, err := os.Stat(path)
	return err == nil && is.Mode().IsRegular()
}

// Parse is Load for the text of a file.
func Parse(path string, src []byte, flags *pflag.FlagSet) (*Config, error) {
	l := layers{viper: viper.New(), places: newPlaces(path)}
	l.file(path, src)
	for _, leaf := range leaves() {
		l.viper.SetDefault(leaf.key, leaf.value.Interface())
		l.env(leaf)
		l.flag(leaf, flags)
	}
	for _, f := range l.faults {
		if f.Key == "" && f.File == path {
			return nil, l.faults.Err() // the file is no configuration at all
		}
	}
	cfg := &Config{Places: l.places}
	if err := l.viper.Unmarshal(cfg, func(c *mapstructure.DecoderConfig) {
		c.TagName, c.DecodeHook, c.WeaklyTypedInput = "yaml", l.fromText, false
	}); err != nil {
		// The values were decoded before, so this does not fail.
		return nil, fmt.Errorf("configuration %s: %w", path, err)
	}
	if err := cfg.complete(path); err != nil {
		return nil, err
	}
	return cfg, l.faults.With(cfg.validate()).Err()
}

// leaf is a key that is not a section, with its default.
type leaf struct {
	key   string
	value reflect.Value
}

// leaves returns all keys of the file that are not sections, in its order.
func leaves() []leaf {
	var out []leaf
	var walk func(v reflect.Value, key string)
	walk = func(v reflect.Value, key string) {
		for i := range v.NumField() {
			name := v.Type().Field(i).Tag.Get("yaml")
			if name == "" || name == "-" {
				continue
			}
			f, sub := v.Field(i), join(key, name)
			if f.Kind() == reflect.Struct {
				walk(f, sub)
			} else {
				out = append(out, leaf{sub, f})
			}
		}
	}
	walk(reflect.ValueOf(Default()), "")
	return out
}

// layers has viper, and what viper does not keep: places and faults.
type layers struct {
	viper  *viper.Viper
	places *Places
	faults Faults
}

// file gives viper the file's values, in the types of the structs.
func (l *layers) file(path string, src []byte) {
	d := decoder{file: path, src: src, places: l.places, reserved: reserved}
	given := map[string]any{}
	d.leaf = func(key string, v reflect.Value) {
		names := strings.Split(key, ".")
		at := given
		for _, n := range names[:len(names)-1] {
			sub, ok := at[n].(map[string]any)
			if !ok {
				sub = map[string]any{}
				at[n] = sub
			}
			at = sub
		}
		at[names[len(names)-1]] = v.Interface()
	}
	d.run(reflect.ValueOf(new(Config)).Elem(), "")
	l.faults = append(l.faults, d.faults...)
	if err := l.viper.MergeConfigMap(given); err != nil {
		l.faults = append(l.faults, Fault{Pos: Pos{File: path}, Reason: err.Error()})
	}
}

// flag binds the leaf's flag if it was set.
func (l *layers) flag(leaf leaf, flags *pflag.FlagSet) {
	if flags == nil {
		return
	}
	f := flags.Lookup(leaf.key)
	if f == nil || !f.Changed {
		return
	}
	if l.given(leaf, "--"+leaf.key, f.Value.String()) {
		// BindPFlag fails only without a flag.
		_ = l.viper.BindPFlag(leaf.key, f)
	}
}

// given checks a variable's or flag's text for a leaf. It makes the source the leaf's place instead
// of the file. It reports whether the text is valid.
func (l *layers) given(leaf leaf, source, text string) bool {
	for key := range l.places.at {
		if rest, ok := strings.CutPrefix(key, leaf.key); ok && (rest == "" || rest[0] == '[') {
			delete(l.places.at, key)
		}
	}
	_, faults := fromText(leaf.key, source, text, leaf.value.Type(), l.places)
	l.faults = append(l.faults, faults...)
	l.places.at[leaf.key] = place{Pos: Pos{File: source}}
	return len(faults) == 0
}

// fromText is viper's hook for converting a variable's or flag's text to the field's type. Values
// of the file have their type already.
func (l *layers) fromText(from, to reflect.Value) (any, error) {
	if from.Kind() != reflect.String || to.Kind() == reflect.String {
		return from.Interface(), nil
	}
	v, faults := fromText("", "", from.String(), to.Type(), newPlaces(""))
	if err := faults.Err(); err != nil {
		return nil, err
	}
	return v.Interface(), nil
}

// fromText converts a text to type t; lists are YAML.
func fromText(key, source, text string, t reflect.Type, places *Places) (reflect.Value, Faults) {
	v := reflect.New(t).Elem()
	if t.Kind() == reflect.Slice {
		d := decoder{file: source, src: []byte(text), places: places, reserved: reserved}
		d.run(v, key)
		return v, d.faults
	}
	if err := setText(v, text); err != nil {
		return v, Faults{{Pos: Pos{File: source}, Key: key, Reason: err.Error()}}
	}
	return v, nil
}
