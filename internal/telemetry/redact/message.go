package redact

import (
	"fmt"
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

// named has, for each message that is a pair of a name and content, the field with the name. The
// other fields are a secret if the name is suspicious.
var named = map[protoreflect.FullName]protoreflect.Name{
	"envoy.config.core.v3.HeaderValue":            "key",
	"envoy.config.core.v3.KeyValue":               "key",
	"envoy.config.core.v3.KeyValuePair":           "key",
	"envoy.config.route.v3.HeaderMatcher":         "name",
	"envoy.config.route.v3.QueryParameterMatcher": "name",
}

// Message returns a copy of m without secrets.
func Message(m proto.Message) proto.Message {
	out := proto.Clone(m)
	if out == nil {
		return nil
	}
	message(out.ProtoReflect(), false, 0)
	return out
}

// JSON returns Message as protobuf's JSON, with the proto names of the fields.
func JSON(m proto.Message) ([]byte, error) {
	b, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(Message(m))
	if err != nil {
		// The error may quote the content.
		return nil, Error(fmt.Errorf("redact %s: %w", m.ProtoReflect().Descriptor().FullName(), err))
	}
	return b, nil
}

// Any is Message for a resource. It opens the Any if the program links the type.
func Any(a *anypb.Any) *anypb.Any {
	out := proto.CloneOf(a)
	if out != nil {
		message(out.ProtoReflect(), false, 0)
	}
	return out
}

// message hides the secrets in m, or all of m if hide is set.
func message(m protoreflect.Message, hide bool, depth int) {
	if len(m.GetUnknown()) > 0 {
		m.SetUnknown(nil)
	}
	name := m.Descriptor().FullName()
	switch {
	case name == anyType:
		open(m, hide, depth)
		return
	case depth > maxDepth:
		clearAll(m)
	}
	if v, ok := m.Interface().(*structpb.Value); ok && v.Kind == nil {
		v.Kind = &structpb.Value_NullValue{} // the only form of an empty Value that JSON has
	}
	var about protoreflect.FieldDescriptor // the name in a pair or a Secret, which stays
	if n, ok := named[name]; ok {
		about = m.Descriptor().Fields().ByName(n)
		hide = hide || Suspicious(m.Get(about).String())
	}
	if st, ok := m.Interface().(*structpb.Struct); ok && !hide {
		pair(st)
	}
	if name == secretType {
		about, hide = m.Descriptor().Fields().ByName("name"), true
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if f != about {
			field(m, f, v, hide || sensitive(f), depth)
		}
		return true
	})
}

// pair hides the content in a Struct that is a pair of a name and content, such as a header.
func pair(st *structpb.Struct) {
	for _, k := range []string{"key", "name"} {
		if !Suspicious(st.GetFields()[k].GetStringValue()) {
			continue
		}
		for name := range st.Fields {
			if isContent(name) {
				st.Fields[name] = structpb.NewStringValue(Hidden)
			}
		}
	}
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

// field hides the secrets in a set field.
func field(m protoreflect.Message, f protoreflect.FieldDescriptor, v protoreflect.Value, hide bool, depth int) {
	switch {
	case f.IsMap():
		entries(f, v.Map(), hide, depth)
	case f.IsList():
		for i := range v.List().Len() {
			if e, changed := value(f, v.List().Get(i), hide, depth); changed {
				v.List().Set(i, e)
			}
		}
	default:
		if e, changed := value(f, v, hide, depth); changed {
			m.Set(f, e)
		}
	}
}

// entries hides the secrets in a map. A key may be a secret itself.
func entries(f protoreflect.FieldDescriptor, all protoreflect.Map, hide bool, depth int) {
	type entry struct {
		key protoreflect.MapKey
		v   protoreflect.Value
	}
	var list []entry
	all.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		list = append(list, entry{k, v})
		return true
	})
	of := f.MapValue()
	direct := isText(of.Kind()) || of.Kind() == protoreflect.MessageKind && of.Message().FullName() == valueType
	for _, e := range list {
		secret := hide || direct && f.MapKey().Kind() == protoreflect.StringKind && Suspicious(e.key.String())
		v, changed := value(of, e.v, secret, depth)
		if f.MapKey().Kind() == protoreflect.StringKind {
			if was := e.key.String(); Text(was) != was {
				all.Clear(e.key)
				e.key, changed = protoreflect.ValueOfString(Text(was)).MapKey(), true
			}
		}
		if changed {
			all.Set(e.key, v)
		}
	}
}

// value returns the redacted value, and whether it differs from v.
func value(f protoreflect.FieldDescriptor, v protoreflect.Value, hide bool, depth int) (protoreflect.Value, bool) {
	switch f.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		message(v.Message(), hide, depth+1)
		return v, false
	case protoreflect.StringKind:
		if hide {
			return protoreflect.ValueOfString(Hidden), true
		}
		s := Text(v.String())
		return protoreflect.ValueOfString(s), s != v.String()
	case protoreflect.BytesKind:
		if hide {
			return protoreflect.ValueOfBytes([]byte(Hidden)), true
		}
		s := Text(string(v.Bytes()))
		return protoreflect.ValueOfBytes([]byte(s)), s != string(v.Bytes())
	case protoreflect.BoolKind, protoreflect.EnumKind:
		return v, false
	}
	if hide { // a number may be a PIN, or a secret's length
		return f.Default(), f.Default().IsValid()
	}
	return v, false
}

// open hides the secrets in an Any.
func open(m protoreflect.Message, hide bool, depth int) {
	a, ok := m.Interface().(*anypb.Any)
	if !ok {
		clearAll(m)
		return
	}
	if depth <= maxDepth {
		if inner, err := a.UnmarshalNew(); err == nil {
			message(inner.ProtoReflect(), hide, depth+1)
			if b, err := (proto.MarshalOptions{Deterministic: true}).Marshal(inner); err == nil {
				a.TypeUrl, a.Value = Text(a.TypeUrl), b
				return
			}
		}
	}
	closed(a)
}

// maxURL bounds the shown type URL, in bytes.
const maxURL = 256

// closed replaces an Any that cannot be opened by its type and size.
func closed(a *anypb.Any) {
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

func clearAll(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		m.Clear(f)
		return true
	})
	m.SetUnknown(nil)
}
