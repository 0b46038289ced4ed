package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/cncf/xds/go/udpa/annotations"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
)

// maxDepth bounds the depth of nested messages. A deeper Any is shown by type and size, and other
// content is cleared.
const maxDepth = 100

const (
	secretType = "envoy.extensions.transport_sockets.tls.v3.Secret"
	anyType    = "google.protobuf.Any"
	structType = "google.protobuf.Struct"
	valueType  = "google.protobuf.Value"
	sourceType = "envoy.config.core.v3.DataSource"
)

// secrets are fields with secrets that the protos do not mark, by full name.
var secrets = map[protoreflect.FullName]bool{
	"envoy.extensions.filters.http.jwt_authn.v3.JwtProvider.local_jwks": true, // keys may be symmetric
}

// pairNames are the fields with the name in a message that is a pair of a name and content. A
// message with a field name is a pair only if it has a value (valued): most messages
// with a name are no pairs.
var pairNames = []protoreflect.Name{"key", "header_name", "tag", "query_param", "object_key", "name"}

// onMatch are messages that say what follows if a matcher matches: no content of a pair.
var onMatch = map[protoreflect.FullName]bool{
	"xds.type.matcher.v3.Matcher.OnMatch":            true,
	"envoy.config.common.matcher.v3.Matcher.OnMatch": true,
}

// hider hides secrets and remembers them.
type hider struct {
	hidden  map[string]bool // nil: they are not remembered
	removed bool            // content was removed that is not in hidden
}

func (h *hider) remember(s string) {
	if h.hidden != nil && s != "" {
		h.hidden[s] = true
	}
}

// Message returns a copy of m without secrets.
func Message(m proto.Message) proto.Message {
	out := proto.Clone(m)
	if out == nil {
		return nil
	}
	new(hider).message(out.ProtoReflect(), false, 0)
	return out
}

// JSON returns Message as protobuf's JSON, with the proto names of the fields. It is compact, because
// the spaces of protojson differ between builds.
func JSON(m proto.Message) ([]byte, error) {
	b, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(Message(m))
	if err != nil {
		// The error may quote the content.
		return nil, Error(fmt.Errorf("redact %s: %w", m.ProtoReflect().Descriptor().FullName(), err))
	}
	var out bytes.Buffer
	err = json.Compact(&out, b)
	return out.Bytes(), err
}

// Any is Message for a resource. It opens the Any if the program links the type.
func Any(a *anypb.Any) *anypb.Any {
	out := proto.CloneOf(a)
	if out != nil {
		new(hider).message(out.ProtoReflect(), false, 0)
	}
	return out
}

// message hides the secrets in m, or all of m if hide is set.
func (h *hider) message(m protoreflect.Message, hide bool, depth int) {
	if len(m.GetUnknown()) > 0 {
		m.SetUnknown(nil)
		h.removed = true
	}
	name := m.Descriptor().FullName()
	switch {
	case name == anyType:
		h.open(m, hide, depth)
		return
	case depth > maxDepth:
		h.clearAll(m)
	}
	if v, ok := m.Interface().(*structpb.Value); ok && v.Kind == nil {
		v.Kind = &structpb.Value_NullValue{} // the only form of an empty Value that JSON has
	}
	about, suspicious := names(m, depth)
	if name == secretType {
		about, suspicious = []protoreflect.FieldDescriptor{m.Descriptor().Fields().ByName("name")}, true
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		h.field(m, f, v, hide || suspicious && !slices.Contains(about, f) || sensitive(f), depth)
		return true
	})
}

// names returns the fields of m that say what the rest of m is about, and whether one of them is the
// name of a secret. They are those of pairNames, the keys of a path, and the input of a matcher.
func names(m protoreflect.Message, depth int) (about []protoreflect.FieldDescriptor, suspicious bool) {
	fields := m.Descriptor().Fields()
	for _, n := range pairNames {
		f := fields.ByName(n)
		if f == nil || f.Kind() != protoreflect.StringKind || f.IsList() || n == "name" && !valued(m.Descriptor()) {
			continue
		}
		about = append(about, f)
		suspicious = suspicious || Suspicious(m.Get(f).String())
	}
	if f := fields.ByName("path"); f != nil && f.IsList() && f.Message() != nil {
		about = append(about, f)
		for i := range m.Get(f).List().Len() {
			_, is := names(m.Get(f).List().Get(i).Message(), maxDepth+1)
			suspicious = suspicious || is
		}
	}
	if f := fields.ByName("input"); f != nil && f.Message() != nil && f.Message().Name() == "TypedExtensionConfig" && depth <= maxDepth {
		about = append(about, f)
		if a, ok := m.Get(f).Message().Get(f.Message().Fields().ByName("typed_config")).Message().Interface().(*anypb.Any); ok {
			if input, err := a.UnmarshalNew(); err == nil {
				_, is := names(input.ProtoReflect(), maxDepth+1)
				suspicious = suspicious || is
			}
		}
	}
	return about, suspicious
}

// valued reports whether messages of this type have a value: a field that is called so, or a
// matcher of text. One with a name is a pair then.
func valued(d protoreflect.MessageDescriptor) bool {
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		if strings.Contains(string(f.Name()), "value") && isText(f.Kind()) || f.Message() != nil && f.Message().Name() == "StringMatcher" {
			return true
		}
	}
	return false
}

// sensitive reports whether a whole field is a secret.
func sensitive(f protoreflect.FieldDescriptor) bool {
	if secrets[f.FullName()] {
		return true
	}
	if o := f.Options(); o != nil && proto.HasExtension(o, annotations.E_Sensitive) {
		if is, _ := proto.GetExtension(o, annotations.E_Sensitive).(bool); is {
			return true
		}
	}
	holds := isText(f.Kind()) || f.Kind() == protoreflect.MessageKind && f.Message().FullName() == sourceType
	return holds && !f.IsMap() && Suspicious(string(f.Name()))
}

func isText(k protoreflect.Kind) bool {
	return k == protoreflect.StringKind || k == protoreflect.BytesKind
}

func (h *hider) field(m protoreflect.Message, f protoreflect.FieldDescriptor, v protoreflect.Value, hide bool, depth int) {
	switch {
	case f.IsMap():
		h.entries(m, f, v.Map(), hide, depth)
	case f.IsList():
		for i := range v.List().Len() {
			if e, changed := h.value(f, v.List().Get(i), hide, depth); changed {
				v.List().Set(i, e)
			}
		}
	default:
		if e, changed := h.value(f, v, hide, depth); changed {
			m.Set(f, e)
		}
	}
}

// entries hides the secrets in a map. A key may be a secret itself.
func (h *hider) entries(m protoreflect.Message, f protoreflect.FieldDescriptor, all protoreflect.Map, hide bool, depth int) {
	var keys []string
	of := f.MapValue()
	direct := isText(of.Kind()) || of.Kind() == protoreflect.MessageKind && of.Message().FullName() == valueType
	st, isStruct := m.Interface().(*structpb.Struct)
	pair := isStruct && pairs(func(name string) string { return st.GetFields()[name].GetStringValue() })
	all.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		if f.MapKey().Kind() == protoreflect.StringKind {
			keys = append(keys, k.String())
		} else if e, changed := h.value(of, v, hide, depth); changed {
			all.Set(k, e)
		}
		return true
	})
	slices.Sort(keys)
	for i, key := range keys {
		k := protoreflect.ValueOfString(key).MapKey()
		secret := hide || direct && Suspicious(key) || pair && isContent(key)
		v, changed := h.value(of, all.Get(k), secret && (of.Message() == nil || !onMatch[of.Message().FullName()]), depth)
		shown := Text(key)
		if hide && !isStruct { // keys are names only in a Struct
			h.remember(key)
			shown = fmt.Sprintf("%s %d", Hidden, i+1)
		}
		if shown != key {
			all.Clear(k)
			k, changed = protoreflect.ValueOfString(shown).MapKey(), true
		}
		if changed {
			all.Set(k, v)
		}
	}
}

// value returns the redacted value, and whether it differs from v.
func (h *hider) value(f protoreflect.FieldDescriptor, v protoreflect.Value, hide bool, depth int) (protoreflect.Value, bool) {
	switch f.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		h.message(v.Message(), hide, depth+1)
		return v, false
	case protoreflect.StringKind:
		if hide {
			h.remember(v.String())
			return protoreflect.ValueOfString(Hidden), true
		}
		s := h.text(v.String(), 0)
		return protoreflect.ValueOfString(s), s != v.String()
	case protoreflect.BytesKind:
		if hide {
			h.remember(string(v.Bytes()))
			h.remember(base64.StdEncoding.EncodeToString(v.Bytes())) // in JSON
			return protoreflect.ValueOfBytes([]byte(Hidden)), true
		}
		s := h.text(string(v.Bytes()), 0)
		return protoreflect.ValueOfBytes([]byte(s)), s != string(v.Bytes())
	case protoreflect.BoolKind, protoreflect.EnumKind:
		return v, false
	}
	if hide { // a number may be a PIN, or a secret's length
		h.remember(v.String())
		return f.Default(), f.Default().IsValid()
	}
	return v, false
}

func (h *hider) open(m protoreflect.Message, hide bool, depth int) {
	a, ok := m.Interface().(*anypb.Any)
	if !ok {
		h.clearAll(m)
		return
	}
	if depth <= maxDepth {
		if inner, err := a.UnmarshalNew(); err == nil {
			h.message(inner.ProtoReflect(), hide, depth+1)
			if b, err := (proto.MarshalOptions{Deterministic: true}).Marshal(inner); err == nil {
				a.TypeUrl, a.Value = Text(a.TypeUrl), b
				return
			}
		}
	}
	h.closed(a)
}

// maxURL bounds the shown type URL, in bytes.
const maxURL = 256

// closed replaces an Any that cannot be opened by its type and size.
func (h *hider) closed(a *anypb.Any) {
	h.removed = true
	url := a.TypeUrl
	s := &structpb.Struct{Fields: map[string]*structpb.Value{
		"redacted_type": structpb.NewStringValue(Text(strings.ToValidUTF8(url[:min(len(url), maxURL)], ""))),
		"bytes":         structpb.NewNumberValue(float64(len(a.Value))),
	}}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(s)
	if err != nil {
		b = nil // shows nothing then
	}
	a.TypeUrl, a.Value = "type.googleapis.com/"+structType, b
}

func (h *hider) clearAll(m protoreflect.Message) {
	h.removed = true
	m.Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		m.Clear(f)
		return true
	})
	m.SetUnknown(nil)
}
