package redact

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	_ "xdsrelay/internal/anytypes" // links the messages that are opened
)

// secretForms are the forms of secrets in text.
var secretForms = []string{
	"-----BEGIN PRIVATE KEY-----\n" + marker + "\n-----END PRIVATE KEY-----",
	`-----BEGIN EC PRIVATE KEY-----\n` + marker + `\n-----END EC PRIVATE KEY-----`,
	"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n" + marker, // cut
	`private_key { inline_string: "` + marker + `" }`,
	`inline_bytes: "` + marker + `"`,
	`{"inline_string":"` + marker + `"}`,
	`{"inlineBytes" : "` + marker + `"}`,
	`{\"inline_string\":\"` + marker + `\"}`,
	`{\\\"inlineString\\\":\\\"` + marker + `\\\"}`,
	`inline_string: "a \" quote ` + marker + `"`,
	`inline_string: "` + marker, // cut
	`inline_string:'` + marker + `'`,
	"authorization: Bearer " + marker,
	"Bearer " + marker,
	"postgres://user:" + marker + "@db/x",
	"eyJhbGciOiJIUzI1NiJ9." + marker + ".c2ln",
	"https://ghp_1234567890" + marker + "@host.test/x",
	"https://user:a@" + marker + "@host.test/",
	"https://host.test/x?zone=a&api_key=" + marker + "&b=c#d",
	`{"path":"/x?zone=a\u0026psk=` + marker + `"}`,
	"https://bucket.test/a.wasm?X-Amz-Date=1&X-Amz-Signature=" + marker,
	"https://account.test/a.wasm?sv=1&sig=" + marker,
}

func TestTextHidesSecrets(t *testing.T) {
	for _, f := range secretForms {
		for _, s := range []string{f, "before " + f, f + " after", `Proto constraint validation failed: ` + f + ` caused by x: y`} {
			if out := Text(s); strings.Contains(out, marker) {
				t.Errorf("%q became %q", s, out)
			} else if again := Text(out); strings.Contains(again, marker) {
				t.Errorf("%q became %q", out, again)
			}
		}
		if out := Text("what is before, " + f); !strings.HasPrefix(out, "what is before, ") {
			t.Errorf("%q hides what is before it", out)
		}
	}
}

// Text that helps to find a fault stays.
func TestTextLeavesTheRest(t *testing.T) {
	for _, s := range []string{
		"",
		"no healthy upstream",
		`rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"`,
		`Proto constraint validation failed (ClusterValidationError.Name: value length must be at least 1 characters): name: "" connect_timeout { seconds: 1 }`,
		`cluster token-service, tls_secret_name: "server-cert", token_endpoint: "https://sts.test/token"`,
		"key a/b: nothing is held",
		"Basic authentication is not supported",
		"admin.token_file: /etc/relay/token: wants one token of printable ASCII",
		"type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
		`node.metadata["zone"] = "a"`,
		strings.Repeat("x", 1000),
		strings.Repeat("a-long/name_", 100),
		"http://host:80/path@x",
		"spiffe://cluster.local/ns/a/sa/b and mail to somebody@host",
		"password=hunter2: words are not judged",
		`{"value": "a", "key": "b"}`,
		"relay status --admin 127.0.0.1:1 --token-file /etc/token",
		`host_redirect: "host.test:443" path_redirect: "/a@b"`,
		`{"host":"10.0.0.1:80","mail":"somebody@host.test"}`,
		"host: 10.0.0.1:80 of somebody@host.test",
		"vhost: a:b@c",
		"authority: web.test:80, image: img:1@sha256:ab",
		"hmac_algorithm: sha256, dsn_file: /etc/dsn, conn_stream: on",
		"host web:80 does not take a@b",
		"https://host.test/x?zone=a&token_type=b&key=c&bypass=d",
	} {
		if out := Text(s); out != s {
			t.Errorf("%q became %q", s, out)
		}
	}
}

func TestSuspicious(t *testing.T) {
	for _, name := range []string{"password", "Db-Password", "client_secret", "apiKey", "x-auth-token", "PRIVATE_KEY", "proxy-authorization", "set-cookie", "awsSecretAccessKey", "json_key", "SharedKey", "DB_PASS", "pass", "wifi.psk", "PSK", "X-Auth-Key", "AccountKey", "X-Amz-Signature"} {
		if !Suspicious(name) {
			t.Errorf("%s is not", name)
		}
	}
	for _, name := range []string{"", "key", "name", "zone", "secretName", "token_endpoint", "password_file", "sds_secret_config", "author", "routing-key", "bypass", "pass_through", "compass", "envoy.filters.http.basic_auth"} {
		if Suspicious(name) {
			t.Errorf("%s is", name)
		}
	}
}

func TestErrorKeepsWhatItWraps(t *testing.T) {
	err := fmt.Errorf("Bearer %s: %w", marker, io.EOF)
	out := Error(err)
	if strings.Contains(out.Error(), marker) || !errors.Is(out, io.EOF) {
		t.Errorf("%v", out)
	}
	if plain := errors.New("no"); Error(plain) != plain || Error(nil) != nil {
		t.Error("what has nothing to hide is another error")
	}
}

// The handler redacts everything: messages, values, errors, groups, and attributes of the logger.
func TestHandlerHidesSecrets(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(Handler(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	said := `inline_string: "` + marker + `"`
	log.Info("said "+said, "reason", said, "error", errors.New(said), "kept", "as it is", "n", 7)
	log.With("reason", said).WithGroup("g").Debug("x", slog.Group("h", "reason", said), "type", kind(said))
	if strings.Contains(out.String(), marker) {
		t.Errorf("logged: %s", &out)
	}
	for _, want := range []string{`kept="as it is"`, "n=7", "g.h.reason="} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s is missing: %s", want, &out)
		}
	}
}

type kind string

// A secret is hidden with any text around it, in any quotes, and cut anywhere.
func FuzzText(f *testing.F) {
	for i := range secretForms {
		f.Add("", uint8(i), "", uint16(0))
		f.Add(`{"a": "b`, uint8(i), `"}`, uint16(3))
		f.Add(strings.Repeat("aB3", 100), uint8(i), "-----BEGIN ", uint16(20))
	}
	f.Fuzz(func(t *testing.T, before string, form uint8, after string, cut uint16) {
		s := before + " " + secretForms[int(form)%len(secretForms)] + after
		s = s[:len(s)-int(cut)%(len(after)+1)]
		if strings.Contains(before+after, marker) {
			return // the text is hidden in no other way
		}
		if out := Text(s); strings.Contains(out, marker) {
			t.Errorf("%q became %q", s, out)
		}
	})
}

// Text that consists of beginnings only takes no longer than other text, since clients and origins
// may send much of it. So one text of 512 KB takes about as long as eight of 64 KB. If Text were
// quadratic, it would take eight times as long.
func TestTextIsLinear(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// Below 32 KB regular expressions use another, faster algorithm.
	const short, times = 64 << 10, 8
	for _, s := range []string{"token:", `token:"`, "token:{", "token:{}", "-----BEGIN ", "eyJ", "eyJaaaaaaaaa.", "bearer ", "://a:", `inline_string:\\"`, "key:", `key:"token" `, "host:a:", "host:a:@", "authority=", "@", "aB3", "a", " ", "[:=", "?psk=", "&a=b", "?a", `\`, "a.b-"} {
		took := func(size, times int) time.Duration {
			text, began := strings.Repeat(s, size/len(s)), busy(t)
			for range times {
				_ = Text(text)
			}
			return busy(t) - began
		}
		// The clock has ticks of up to 10 ms, and the garbage collector takes its part.
		const few = 20 * time.Millisecond
		var many, one time.Duration
		for range 3 {
			many, one = took(short, times), took(short*times, 1)
			if one <= 4*max(many, few) {
				break
			}
		}
		if one > 4*max(many, few) {
			t.Errorf("%q: %s for %d texts of 64 KB, %s for one of 512 KB", s, many, times, one)
		}
	}
}

// busy is the CPU time of this thread: the machine may be busy.
func busy(t testing.TB) time.Duration {
	const thread = 1 // RUSAGE_THREAD
	var u syscall.Rusage
	if err := syscall.Getrusage(thread, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

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

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// marker must not be shown. It is short and looks like no secret, so that only its place makes it
// one.
const marker = "thekeythatnobodymaysee"

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
