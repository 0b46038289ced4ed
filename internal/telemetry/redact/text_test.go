package redact

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// forms are how secrets stand in text.
var forms = []string{
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
	`"password": "` + marker + `"`,
	`client_secret=` + marker,
	`x-api-key: ` + marker,
	"Authorization: Custom one two " + marker,
	"authorization: Bearer " + marker,
	"Bearer " + marker,
	`fields { key: "password" value { string_value: "` + marker + `" } }`,
	`{"key":"authorization","value":"` + marker + `"}`,
	`"initial_metadata":[{"key":"x-auth","value":"` + marker + `"}]`,
	`initial_metadata { key: "x-functions-key" value: "` + marker + `" }`,
	"session-id: " + marker,
	`request_headers_to_add { header { key: "x-auth-token" value: "` + marker + `" } }`,
	`headers { name: "cookie" string_match { exact: "` + marker + `" } }`,
	`map["token":"` + marker + `"]`,
	`secret: {a: {b: "` + marker + `"}}`,
	"postgres://user:" + marker + "@db/x",
	"eyJhbGciOiJIUzI1NiJ9." + marker + ".c2ln",
	"Basic VXNlcjE6" + marker + "==",
	strings.Repeat("MIIEvQIBADANBgkqhkiG9w0B", 20) + marker,
	"Cookie: theme=dark; sid=" + marker + "; last=1",
	"Authorization: AWS4-HMAC-SHA256 Credential=AKIA/20300101/eu/s3/aws4_request, SignedHeaders=host;date, Signature=" + marker,
	"https://bucket.test/x?X-Amz-Date=1&X-Amz-Signature=" + marker + "&X-Amz-Expires=1",
	`{"value": "` + marker + `", "key": "x-api-key"}`,
	`{\"raw_value\":\"` + marker + `\",\"key\":\"authorization\"}`,
	`header { key: "authorization" raw_value: "` + marker + `" }`,
	"https://ghp_1234567890" + marker + "@host.test/x",
	"password=a,b;" + marker,
	"password=" + marker + ",b&c," + marker,
	"password=x, user=y, passwd=" + marker,
	"run: tool --db-password " + marker + " --verbose",
	`exec: tool --token "a ` + marker + `"`,
	"tool --password " + marker,
	`Authorization: Digest username="u", response="` + marker + `"`,
	"https://user:a@" + marker + "@host.test/",
	`header { value: "` + marker + `" append: true key: "x-api-key" }`,
	"secret\u00a0= " + marker,
	"token=Bearer " + marker,
	"passphrase=correct horse " + marker,
	`"password=correct ` + marker + `"`,
	"'password=correct " + marker + "'",
	`password="correct ` + marker + `"`,
	`password=\"correct ` + marker + `\"`,
	"Authorization=Digest a b " + marker,
	`header { key: "token" value=a ` + marker + ` }`,
	`redirect { host_redirect: "user:` + marker + `@host.test" }`,
	`{"hostRedirect":"user:a@` + marker + `@host.test"}`,
	`{\"host_rewrite_literal\": \"user:` + marker + `@host.test:80\"}`,
	":authority: user:" + marker + "@host.test",
	"host=:" + marker + "@host.test",
	`dsn: "user:` + marker + `@tcp(db:3306)/x"`,
	`DB_DSN=user:` + marker + `@tcp(db:3306)/x`,
	`"connection_string": "Server=db;User Id=u;Pwd=` + marker + `;"`,
	"X-Hub-Signature: sha1=" + marker,
	"x-hub-signature-256: sha256=" + marker,
	`header { key: "x-hub-signature-256" value: "sha256=` + marker + `" }`,
	"X-Shopify-Hmac-Sha256: " + marker,
	"hmac=" + marker,
}

// What stands behind a value that ends with a blank is not a part of it.
func TestTextHidesTheValueOnly(t *testing.T) {
	for s, want := range map[string]string{
		"password=hunter2 thing":           "password=[redacted] thing",
		"no: token=abc was refused by x":   "no: token=[redacted] was refused by x",
		"password=a, user=y (password=b c": "password=[redacted], user=y (password=[redacted] c",
		"apiKey=abc\tdef":                  "apiKey=[redacted]\tdef",
		"password: hunter2 thing":          "password: [redacted]", // a header's value has words
	} {
		if got := Text(s); got != want {
			t.Errorf("%q became %q, want %q", s, got, want)
		}
	}
}

func TestTextHidesSecrets(t *testing.T) {
	for _, f := range forms {
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

// What people need to find a fault stays.
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
		"ssh://git@host.test/x",
		`{"value": "a", "key": "b"}`,
		"relay status --admin 127.0.0.1:1 --token-file /etc/token",
		`host_redirect: "host.test:443" path_redirect: "/a@b"`,
		`{"host":"10.0.0.1:80","mail":"somebody@host.test"}`,
		"host: 10.0.0.1:80 of somebody@host.test",
		"vhost: a:b@c",
		"authority: web.test:80, image: img:1@sha256:ab",
		"hmac_algorithm: sha256, dsn_file: /etc/dsn, conn_stream: on",
		"host web:80 does not take a@b",
	} {
		if out := Text(s); out != s {
			t.Errorf("%q became %q", s, out)
		}
	}
}

func TestSuspicious(t *testing.T) {
	for _, name := range []string{"password", "Db-Password", "client_secret", "apiKey", "x-auth-token", "PRIVATE_KEY", "proxy-authorization", "set-cookie", "pwd", "awsSecretAccessKey", "jwt",
		"auth", "x-auth", "Proxy-Auth", "basic_auth", "x-functions-key", "Ocp-Apim-Subscription-Key", "subscription-key", "x-session", "session-id", "master-key", "masterKey", "x-sid", "X-Amz-Signature",
		"dsn", "DB_DSN", "sentry-dsn", "connection_string", "connectionString", "db_conn_str", "hmac", "x-hmac", "X-Shopify-Hmac-Sha256", "x-hub-signature", "x-hub-signature-256"} {
		if !Suspicious(name) {
			t.Errorf("%s is not", name)
		}
	}
	for _, name := range []string{"", "key", "name", "zone", "secretName", "token_endpoint", "password_file", "sds_secret_config", "author", "keyless", "cluster",
		"routing-key", "hash-key", "hash_key", "descriptor_key", "header_key", "partition-key", "cache-key", "metadata_key", "primaryKey", "sort_key", "runtime_key", "authority", "x-authority", "sessions", "max_sessions",
		"envoy.filters.http.basic_auth", "envoy.http.stateful_session", "ext_authz", "oauth2", "side", "auth_type",
		"hmac_algorithm", "dsn_file", "connection_string_name", "conn_stream", "connection_strategy", "signature_algorithm", "dns", "dsns_lookup", "x-hub-delivery"} {
		if Suspicious(name) {
			t.Errorf("%s is", name)
		}
	}
}

func TestErrorKeepsWhatItWraps(t *testing.T) {
	err := fmt.Errorf("password=%s: %w", marker, io.EOF)
	out := Error(err)
	if strings.Contains(out.Error(), marker) || !errors.Is(out, io.EOF) {
		t.Errorf("%v", out)
	}
	if plain := errors.New("no"); Error(plain) != plain || Error(nil) != nil {
		t.Error("what has nothing to hide is another error")
	}
}

// Whatever is logged goes by the handler: messages, values, errors, groups, and
// what was given beforehand.
func TestHandlerHidesSecrets(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(Handler(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	said := `inline_string: "` + marker + `"`
	log.Info("said "+said, "reason", said, "error", errors.New(said), "token", marker, "kept", "as it is", "n", 7)
	log.With("reason", said).WithGroup("g").Debug("x", slog.Group("h", "reason", said), "type", kind(said))
	if strings.Contains(out.String(), marker) {
		t.Errorf("logged: %s", &out)
	}
	log.Info("not reloaded", "fault", Own("downstream.secrets: wants mtls, allow or deny"))
	for _, want := range []string{`kept="as it is"`, "n=7", "g.h.reason=", `fault="downstream.secrets: wants mtls, allow or deny"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s is missing: %s", want, &out)
		}
	}
}

type kind string

// Whatever stands before and behind, a secret is hidden, however it is quoted and
// wherever it is cut.
func FuzzText(f *testing.F) {
	for i := range forms {
		f.Add("", uint8(i), "", uint16(0))
		f.Add(`{"a": "b`, uint8(i), `"}`, uint16(3))
		f.Add(strings.Repeat("aB3", 100), uint8(i), "-----BEGIN ", uint16(20))
	}
	f.Fuzz(func(t *testing.T, before string, form uint8, after string, cut uint16) {
		s := before + " " + forms[int(form)%len(forms)] + after
		s = s[:len(s)-int(cut)%(len(after)+1)]
		if strings.Contains(before+after, marker) {
			return // that one nobody hid anywhere
		}
		if out := Text(s); strings.Contains(out, marker) {
			t.Errorf("%q became %q", s, out)
		}
	})
}

// Text of nothing but beginnings takes no longer than other text: clients and
// origins may send a lot of it.
func TestTextIsLinear(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, s := range []string{"token:", `token:"`, "token:{", "token:{}", "-----BEGIN ", "eyJ", "eyJaaaaaaaaa.", "bearer ", "://a:", `inline_string:\\"`, "key:", `key:"token" `, "host:a:", "host:a:@", "authority=", "@", "aB3", "a", " ", "[:=", `\`, "a.b-"} {
		took := func(n int) time.Duration {
			text, best := strings.Repeat(s, n/len(s)), time.Hour
			for range 4 {
				began := busy(t)
				_ = redacted(text)
				best = min(best, busy(t)-began)
			}
			return best
		}
		// Below some KB regular expressions are faster by another way.
		short, long := took(16<<10), took(128<<10)
		if long > 32*max(short, time.Millisecond) {
			t.Errorf("%q: %s for 16 KB, %s for 128 KB", s, short, long)
		}
	}
}

// busy is how long this thread was at work: the machine may do other things.
func busy(t testing.TB) time.Duration {
	const thread = 1 // RUSAGE_THREAD
	var u syscall.Rusage
	if err := syscall.Getrusage(thread, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
