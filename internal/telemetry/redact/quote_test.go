package redact

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// What Any hides in a resource is hidden in a message that quotes it, in whatever form, also if the
// message was cut.
func TestQuotingHidesSecrets(t *testing.T) {
	const odd = "a \"quote\"\n\\ and \xc3\xa4 " + marker
	for what, m := range contexts(t) {
		a := pack(t, m)
		text := prototext.MarshalOptions{AllowPartial: true}.Format(m)
		for _, s := range []string{"refused: " + text, text + " is refused", "two equal keys: '" + marker + "'", text[:strings.Index(text+marker, marker)+len(marker)/2]} {
			if out := Quoting(s, []*anypb.Any{a}, true); strings.Contains(out, marker) && strings.Contains(s, `"`) || strings.Contains(out, marker[:len(marker)/2]+`"`) {
				t.Errorf("%s: %q became %q", what, s, out)
			}
		}
	}
	for _, value := range []string{marker, odd, "x", "é", `"`} {
		h := &corev3.HeaderValue{Key: "authorization", Value: value}
		inText, err := prototext.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		json, err := protojson.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		cpp := `key: "authorization" value: "` + inTextProto(value) + `"`
		for _, s := range []string{string(inText), string(json), cpp} {
			out := Quoting(s+" no reason, x", []*anypb.Any{pack(t, h)}, true)
			if strings.Contains(out, marker) || !strings.Contains(out, "authorization") || !strings.Contains(out, `"`+Hidden+`"`) || !strings.HasSuffix(out, " no reason, x") {
				t.Errorf("%q became %q", s, out)
			}
		}
	}
}

// If the message may quote more than the given resources, string literals are hidden, and nothing
// else.
func TestQuotingHidesLiteralsOfOthers(t *testing.T) {
	const said = `listener a: Proto constraint validation failed (StatPrefix: value length must be at least 1 characters): stat_prefix: "" header { key: "x" value: "` + marker + `" } 'b' \"` + marker + `\" end`
	const want = `listener a: Proto constraint validation failed (StatPrefix: value length must be at least 1 characters): stat_prefix: "" header { key: "[redacted]" value: "[redacted]" } 'b' \"[redacted]\" end`
	unlinked := &anypb.Any{TypeUrl: "type.googleapis.com/acme.Unknown", Value: []byte(marker)}
	for _, out := range []string{Quoting(said, nil, false), Quoting(said, []*anypb.Any{unlinked}, true)} {
		if out != want {
			t.Errorf("became %q", out)
		}
	}
	public := pack(t, &listenerv3.Listener{Name: "a"})
	before := proto.CloneOf(public)
	if out := Quoting(said, []*anypb.Any{public}, true); out != said || !proto.Equal(public, before) {
		t.Errorf("became %q", out)
	}
}

// FuzzQuoting: a value that Any hides is not found in a message, whatever surrounds it.
func FuzzQuoting(f *testing.F) {
	f.Add("a", "b", "value", true)
	f.Add(`x: "`, `"`, "a \"b\\", false)
	f.Fuzz(func(t *testing.T, before, after, value string, all bool) {
		m := &corev3.HeaderValue{Key: "authorization", RawValue: []byte(value + marker)}
		for _, s := range []string{value + marker, inJSON(value + marker), inTextProto(value + marker)} {
			if out := Quoting(before+s+after, []*anypb.Any{pack(t, m)}, all); strings.Contains(out, marker) && !strings.Contains(before+after+value, marker) {
				t.Errorf("%q became %q", before+s+after, out)
			}
		}
	})
}

// The errors of parsers keep the place and the field, and no value.
func TestParsing(t *testing.T) {
	for said, want := range map[string]string{
		`proto: (line 1:20): unexpected token "hunter2"`:                                       `proto: (line 1:20): unexpected token [redacted]`,
		`syntax error (line 1:20): unexpected token hunter2`:                                   `syntax error (line 1:20): unexpected token [redacted]`,
		`proto: (line 1:20): invalid value for string field name: 12345`:                       `proto: (line 1:20): invalid value for string field name [redacted]`,
		`proto: (line 1:20): invalid value for string field name: {`:                           `proto: (line 1:20): invalid value for string field name [redacted]`,
		`(line 2:3): invalid google.protobuf.Duration value "hunter2"`:                         `(line 2:3): invalid google.protobuf.Duration value [redacted]`,
		`syntax error (line 1:9): invalid value hunter2`:                                       `syntax error (line 1:9): invalid value [redacted]`,
		`(line 1:9): invalid value for string type: hunter2`:                                   `(line 1:9): invalid value for string type [redacted]`,
		"line 3: cannot unmarshal !!str `hunter2` into int":                                    "line 3: cannot unmarshal [redacted]",
		`unsupported map key of type: slice, key: []interface {}{"hunter2"}, value: "hunter2"`: `unsupported map key [redacted]`,
		`invalid map key: []interface {}{"hunter2"}`:                                           `invalid map key [redacted]`,
		`syntax error (line 2:1): unexpected token }`:                                          `syntax error (line 2:1): unexpected token }`,
		`(line 1:2): unknown field "nmae"`:                                                     `(line 1:2): unknown field "nmae"`,
		`line 3: key "name" already set in map`:                                                `line 3: key "name" already set in map`,
		`string field name contains invalid UTF-8`:                                             `string field name contains invalid UTF-8`,
	} {
		if out := Parsing(errors.New(said)); out.Error() != want {
			t.Errorf("%q became %q", said, out)
		}
	}
}

// A message of twice the size, which quotes twice as many values, takes twice the time.
func TestQuotingIsLinear(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	took := func(n int) time.Duration {
		var said strings.Builder
		var all []*anypb.Any
		for i := range n {
			value := strings.Repeat("a", i%100) + string(rune('a'+i%26))
			all = append(all, pack(t, &corev3.HeaderValue{Key: "authorization", Value: value}))
			said.WriteString(`value: "` + value + `" `)
		}
		began := busy(t)
		_ = Quoting(said.String(), all, false)
		return busy(t) - began
	}
	var few, many time.Duration
	for range 3 {
		few, many = took(5000), took(20000)
		if many <= 12*max(few, 20*time.Millisecond) {
			return
		}
	}
	t.Errorf("%s for 5000 values, %s for 20000", few, many)
}
