package config

import (
	"slices"
	"testing"
)

func TestValidate(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"origins": {`upstream:
  origins:
    - {name: x}
    - {address: "a b:1"}
    - {address: "file:"}
    - {address: "file://host"}
    - {address: "10.0.0.1:99999"}
    - {address: "o:1", name: same, balance: random}
    - {address: "p:1", name: same}
    - {address: "p:2", tls: {cert_file: c}}
    - {address: "file:d", tls: {ca_file: c}}
    - {address: "[::1]:1"}
    - {address: "unix:/run/xds.sock"}
`, []string{
			"3:7: upstream.origins[0].address: has to be given: a gRPC target, or file: and a directory",
			`4:17: upstream.origins[1].address: "a b:1" is no gRPC target: it has white space`,
			`5:17: upstream.origins[2].address: wants file:///absolute/directory, or file:directory relative to this file, got "file:"`,
			`6:17: upstream.origins[3].address: wants file:///absolute/directory, or file:directory relative to this file, got "file://host"`,
			`7:17: upstream.origins[4].address: wants a port from 0 to 65535, got "99999"`,
			`8:45: upstream.origins[5].balance: wants round_robin or pick_first, got "random"`,
			`9:30: upstream.origins[6].name: "same" is the name of upstream.origins[5] already`,
			"10:29: upstream.origins[7].tls.key_file: has to be given with cert_file",
			"11:32: upstream.origins[8].tls: cannot be given for a directory",
		}},
		"targets": {`upstream:
  origins:
    - {address: "http://foo"}
    - {address: "xds:///foo"}
    - {address: "foo"}
    - {address: "dns:///"}
    - {address: "dns:"}
    - {address: "dns:///foo:99999"}
    - {address: "unix:///"}
    - {address: "passthrough:///foo"}
    - {address: ":"}
    - {address: "localhost:1"}
    - {address: "dns:///foo"}
    - {address: "dns:///foo:1"}
    - {address: "dns:foo:2"}
    - {address: "dns://10.0.0.1/foo:3"}
    - {address: "dns:///[::1]:1"}
    - {address: "passthrough:///foo:1"}
    - {address: "unix-abstract:xds"}
    - {address: "unix:///run/xds.sock"}
`, []string{
			"3:17: upstream.origins[0].address: gRPC knows no targets of http:, wants host:port, or one of dns: passthrough: unix: unix-abstract:",
			"4:17: upstream.origins[1].address: gRPC knows no targets of xds:, wants host:port, or one of dns: passthrough: unix: unix-abstract:",
			`5:17: upstream.origins[2].address: wants a host and a port, as in xds.example:18000, got "foo"`,
			`6:17: upstream.origins[3].address: wants a host and a port, as in xds.example:18000, got ""`,
			`7:17: upstream.origins[4].address: wants a host and a port, as in xds.example:18000, got ""`,
			`8:17: upstream.origins[5].address: wants a port from 0 to 65535, got "99999"`,
			`9:17: upstream.origins[6].address: "unix:///" names no socket`,
			`10:17: upstream.origins[7].address: wants a host and a port, as in xds.example:18000, got "foo"`,
			"11:17: upstream.origins[8].address: names no host",
		}},
		"the same address twice": {"upstream: {origins: [{address: \"a:1\"}, {address: \"a:1\"}]}\n",
			[]string{`1:40: upstream.origins[1].name: "a:1" is the name of upstream.origins[0] already`}},
		"enumerations": {origin + `  variant: both
downstream: {secrets: some, versions: mine}
aggregation: {unmatched: refuse}
log: {level: trace, format: xml}
`, []string{
			`3:12: upstream.variant: wants delta or sotw, got "both"`,
			`4:23: downstream.secrets: wants mtls, allow or deny, got "some"`,
			`4:39: downstream.versions: wants content or origin, got "mine"`,
			`5:26: aggregation.unmatched: wants reject or node, got "refuse"`,
			`6:14: log.level: wants debug, info, warn or error, got "trace"`,
			`6:29: log.format: wants text or json, got "xml"`,
		}},
		"durations": {origin + `  linger: -1s
  idle_ttl: 0
  first_answer_timeout: 0s
  backoff: {base: 10s, max: 5s}
downstream:
  settle: -5ms
  ack_timeout: 0s
  keepalive: {time: -1s}
store: {max_age: -1h}
`, []string{
			"3:11: upstream.linger: cannot be negative, got -1s",
			"5:25: upstream.first_answer_timeout: has to be more than 0s, got 0s",
			"6:19: upstream.backoff.base: 10s is more than upstream.backoff.max, which is 5s",
			"8:11: downstream.settle: cannot be negative, got -5ms",
			"9:16: downstream.ack_timeout: has to be more than 0s, got 0s",
			"10:21: downstream.keepalive.time: has to be more than 0s, got -1s",
			"11:18: store.max_age: cannot be negative, got -1h0m0s",
		}},
		"numbers": {origin + `  max_request_bytes: 0
  streams_per_connection: 0
  max_idle: -1
downstream: {limits: {keys: -1, pinned_bytes: -1, streams: 0}}
tracing: {sample: 1.5}
metrics: {prefix: "a-b"}
`, []string{
			"3:22: upstream.max_request_bytes: has to be at least 1, got 0",
			"4:27: upstream.streams_per_connection: has to be at least 1, got 0",
			"5:13: upstream.max_idle: has to be at least 0, got -1",
			"6:29: downstream.limits.keys: has to be at least 0, got -1",
			"6:47: downstream.limits.pinned_bytes: has to be at least 0, got -1",
			"7:19: tracing.sample: wants a share between 0 and 1, got 1.5",
			`8:19: metrics.prefix: wants letters, digits and underscores, got "a-b"`,
		}},
		"not a number": {origin + "tracing: {sample: .nan}\n", []string{"3:19: tracing.sample: wants a share between 0 and 1, got NaN"}},
		"addresses": {origin + `downstream: {address: nowhere, rest_address: "127.0.0.1:http"}
admin: {address: "0.0.0.0:19000", grpc_address: "127.0.0.1:19001"}
metrics: {statsd_address: statsd}
tracing: {otlp_endpoint: collector}
`, []string{
			`3:23: downstream.address: wants host:port, got "nowhere"`,
			`3:46: downstream.rest_address: wants a port from 0 to 65535, got "http"`,
			"4:18: admin.address: 0.0.0.0:19000 is not a loopback address, so admin.token_file has to be given",
			`5:27: metrics.statsd_address: wants host:port, got "statsd"`,
			`6:26: tracing.otlp_endpoint: wants host:port, http://host:port or https://host:port, got "collector"`,
		}},
		"a collector elsewhere": {origin + "tracing: {otlp_endpoint: \"collector:4317\"}\n",
			[]string{"3:26: tracing.otlp_endpoint: collector:4317 is not a loopback address: say https:// for TLS, or http:// for plaintext"}},
		"a collector over HTTP": {origin + "tracing: {otlp_endpoint: \"ftp://collector:4317\"}\n",
			[]string{`3:26: tracing.otlp_endpoint: wants host:port, http://host:port or https://host:port, got "ftp://collector:4317"`}},
		"a collector without a port": {origin + "tracing: {otlp_endpoint: \"https://collector\"}\n",
			[]string{`3:26: tracing.otlp_endpoint: wants host:port, http://host:port or https://host:port, got "https://collector"`}},
		"a collector over TLS":     {origin + "tracing: {otlp_endpoint: \"https://collector:4317\"}\n", nil},
		"a collector in the clear": {origin + "tracing: {otlp_endpoint: \"http://collector:4317/\"}\n", nil},
		"a collector beside it":    {origin + "tracing: {otlp_endpoint: \"localhost:4317\"}\n", nil},
		"a token":                  {origin + "admin: {address: \":19000\", token_file: t}\n", nil},
		"localhost":                {origin + "admin: {address: \"localhost:19000\", grpc_address: \"[::1]:1\"}\n", nil},
		"the same port": {origin + "downstream: {rest_address: \"127.0.0.1:15010\"}\nadmin: {address: \"127.0.0.1:0\", grpc_address: \"127.0.0.1:0\"}\n",
			[]string{"3:28: downstream.rest_address: 127.0.0.1:15010 is downstream.address already"}},
		"the same port of all addresses": {origin + `downstream: {address: "127.0.0.1:1", rest_address: "0.0.0.0:1"}
admin: {address: "[::1]:1", grpc_address: "localhost:1"}
`, []string{
			"3:52: downstream.rest_address: 0.0.0.0:1 takes the port of downstream.address, which is 127.0.0.1:1",
			"4:43: admin.grpc_address: localhost:1 takes the port of downstream.address, which is 127.0.0.1:1",
		}},
		"one port of several addresses": {origin + `downstream: {address: "10.0.0.1:1", rest_address: "127.0.0.1:1"}
admin: {address: "[::1]:1", grpc_address: "127.0.0.2:1"}
`, nil},
		"all addresses come first": {origin + "downstream: {address: \":1\", rest_address: \"relay.example:1\"}\n",
			[]string{"3:43: downstream.rest_address: relay.example:1 takes the port of downstream.address, which is :1"}},
		"listeners": {origin + `downstream:
  address: 127.0.0.1:1
  identity: "true"
  listeners:
    - {address: "127.0.0.1:2", secrets: maybe}
    - {address: "127.0.0.1:2", tls: {client_ca_file: ca}}
    - {identity: "true"}
`, []string{
			"4:12: downstream.address: cannot be given beside downstream.listeners, which replaces it",
			"5:13: downstream.identity: cannot be given beside downstream.listeners, which replaces it",
			`7:41: downstream.listeners[0].secrets: wants mtls, allow or deny, got "maybe"`,
			"8:17: downstream.listeners[1].address: 127.0.0.1:2 is downstream.listeners[0].address already",
			"8:54: downstream.listeners[1].tls.client_ca_file: needs tls.cert_file: clients prove an identity over TLS only",
			`9:7: downstream.listeners[2].address: wants host:port, got ""`,
		}},
		"rules": {origin + `aggregation:
  file: rules.yaml
  rules:
    - match: "true"
    - key: ""
    - {key: [node.id, " "]}
    - {key: []}
`, []string{
			"4:9: aggregation.file: cannot be given beside aggregation.rules: one of the two",
			"6:7: aggregation.rules[0].key: has to be given: an expression, or a list of them",
			"7:12: aggregation.rules[1].key[0]: is empty: every node would be refused",
			"8:23: aggregation.rules[2].key[1]: is empty: every node would be refused",
			"9:13: aggregation.rules[3].key: has to be given: an expression, or a list of them",
		}},
		"certificates": {origin + "downstream: {tls: {key_file: k}}\nadmin: {tls: {cert_file: c}}\n", []string{
			"3:19: downstream.tls.cert_file: has to be given with key_file",
			"4:14: admin.tls.key_file: has to be given with cert_file",
		}},
	} {
		_, err := Load(write(t, c.text), nil)
		if got := all(t, err); !slices.Equal(got, c.want) {
			t.Errorf("%s:\n got %q\nwant %q", name, got, c.want)
		}
	}
}
