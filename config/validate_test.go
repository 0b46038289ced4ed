package config

import (
	"reflect"
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
			"3:7: upstream.origins[0].address: is missing; must be a gRPC target, or file: and a directory",
			`4:17: upstream.origins[1].address: must be a gRPC target without white space, but is "a b:1"`,
			`5:17: upstream.origins[2].address: must be file:///absolute/directory, or file:directory relative to this file, but is "file:"`,
			`6:17: upstream.origins[3].address: must be file:///absolute/directory, or file:directory relative to this file, but is "file://host"`,
			`7:17: upstream.origins[4].address: must have a port from 0 to 65535, but has "99999"`,
			`8:45: upstream.origins[5].balance: must be round_robin or pick_first, but is "random"`,
			`9:30: upstream.origins[6].name: "same" is already the name of upstream.origins[5]`,
			"10:29: upstream.origins[7].tls.key_file: is missing; cert_file needs it",
			"11:32: upstream.origins[8].tls: cannot be set for a directory",
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
			"3:17: upstream.origins[0].address: must be host:port, or begin with one of dns: passthrough: unix: unix-abstract:, but begins with http:",
			"4:17: upstream.origins[1].address: must be host:port, or begin with one of dns: passthrough: unix: unix-abstract:, but begins with xds:",
			`5:17: upstream.origins[2].address: must be host:port, such as xds.example:18000, but is "foo"`,
			`6:17: upstream.origins[3].address: must be host:port, such as xds.example:18000, but is ""`,
			`7:17: upstream.origins[4].address: must be host:port, such as xds.example:18000, but is ""`,
			`8:17: upstream.origins[5].address: must have a port from 0 to 65535, but has "99999"`,
			`9:17: upstream.origins[6].address: must name a socket, but is "unix:///"`,
			`10:17: upstream.origins[7].address: must be host:port, such as xds.example:18000, but is "foo"`,
			"11:17: upstream.origins[8].address: must be host:port, but has no host",
		}},
		"hosts": {`upstream:
  origins: [{address: "%zz:1"}, {address: "dns:///a_b.c-1.:1"}]
downstream:
  listeners:
    - {address: "*:15010"}
    - {address: "a b:1"}
    - {address: "-x:1"}
    - {address: "127.1:1"}
    - {address: "010.0.0.1:1"}
    - {address: "[fe80::1%eth0]:1"}
    - {address: "host-1.example.:2"}
    - {address: "1a:3"}
    - {address: ":4"}
    - {address: "localhost:5"}
    - {address: "localhost:05"}
`, []string{
			`2:23: upstream.origins[0].address: must have an IP address or a host name, but has "%zz"`,
			`5:17: downstream.listeners[0].address: must have an IP address or a host name, but has "*"`,
			`6:17: downstream.listeners[1].address: must have an IP address or a host name, but has "a b"`,
			`7:17: downstream.listeners[2].address: must have an IP address or a host name, but has "-x"`,
			`8:17: downstream.listeners[3].address: must have an IP address or a host name, but has "127.1"`,
			`9:17: downstream.listeners[4].address: must have an IP address or a host name, but has "010.0.0.1"`,
			`15:17: downstream.listeners[10].address: localhost:05 has the same port as downstream.listeners[9].address, which is localhost:5`,
		}},
		"the same address twice": {"upstream: {origins: [{address: \"a:1\"}, {address: \"a:1\"}]}\n",
			[]string{`1:40: upstream.origins[1].name: "a:1" is already the name of upstream.origins[0]`}},
		"enumerations": {origin + `  variant: both
downstream: {secrets: some, versions: mine}
aggregation: {unmatched: refuse}
log: {level: trace, format: xml}
`, []string{
			`3:12: upstream.variant: must be delta or sotw, but is "both"`,
			`4:23: downstream.secrets: must be mtls, identity, allow or deny, but is "some"`,
			`4:39: downstream.versions: must be content or origin, but is "mine"`,
			`5:26: aggregation.unmatched: must be reject or node, but is "refuse"`,
			`6:14: log.level: must be debug, info, warn or error, but is "trace"`,
			`6:29: log.format: must be text or json, but is "xml"`,
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
			"3:11: upstream.linger: must not be negative, but is -1s",
			"5:25: upstream.first_answer_timeout: must be more than 0s, but is 0s",
			"6:19: upstream.backoff.base: must be at most upstream.backoff.max (5s), but is 10s",
			"8:11: downstream.settle: must not be negative, but is -5ms",
			"9:16: downstream.ack_timeout: must be more than 0s, but is 0s",
			"10:21: downstream.keepalive.time: must be more than 0s, but is -1s",
			"11:18: store.max_age: must not be negative, but is -1h0m0s",
		}},
		"numbers": {origin + `  max_request_bytes: 0
  streams_per_connection: 0
  max_idle: -1
downstream: {limits: {keys: -1, pinned_bytes: -1, streams: 0}}
tracing: {sample: 1.5}
metrics: {prefix: "a-b"}
`, []string{
			"3:22: upstream.max_request_bytes: must be at least 1, but is 0",
			"4:27: upstream.streams_per_connection: must be at least 1, but is 0",
			"5:13: upstream.max_idle: must be at least 0, but is -1",
			"6:29: downstream.limits.keys: must be at least 0, but is -1",
			"6:47: downstream.limits.pinned_bytes: must be at least 0, but is -1",
			"7:19: tracing.sample: must be between 0 and 1, but is 1.5",
			`8:19: metrics.prefix: must be letters, digits and underscores, with no digit first, but is "a-b"`,
		}},
		"no percentage":    {origin + "aggregation: {max_rekeyed: half}\n", []string{`3:28: aggregation.max_rekeyed: must be a percentage from 0% to 100%, but is "half"`}},
		"a large one":      {origin + "aggregation: {max_rekeyed: 101%}\n", []string{`3:28: aggregation.max_rekeyed: must be a percentage from 0% to 100%, but is "101%"`}},
		"a share":          {origin + "aggregation: {max_rekeyed: '0.5'}\n", []string{`3:28: aggregation.max_rekeyed: must be a percentage from 0% to 100%, but is "0.5"`}},
		"NaN %":            {origin + "aggregation: {max_rekeyed: NaN%}\n", []string{`3:28: aggregation.max_rekeyed: must be a percentage from 0% to 100%, but is "NaN%"`}},
		"good percentages": {origin + "aggregation: {max_rekeyed: 12.5%}\n", nil},
		"not a number":     {origin + "tracing: {sample: .nan}\n", []string{"3:19: tracing.sample: must be between 0 and 1, but is NaN"}},
		"addresses": {origin + `downstream: {address: nowhere, rest_address: "127.0.0.1:http"}
admin: {address: "0.0.0.0:19000", grpc_address: "127.0.0.1:19001"}
metrics: {statsd_address: statsd}
tracing: {otlp_endpoint: collector}
`, []string{
			`3:23: downstream.address: must be host:port, but is "nowhere"`,
			`3:46: downstream.rest_address: must have a port from 0 to 65535, but has "http"`,
			"4:18: admin.address: 0.0.0.0:19000 is not a loopback address; set admin.token_file",
			`5:27: metrics.statsd_address: must be host:port, but is "statsd"`,
			`6:26: tracing.otlp_endpoint: must be the URL of a collector for OTLP over HTTP, such as http://collector:4318, but is "collector"`,
		}},
		"no cluster": {origin + "cluster: {gossip: nowhere}\n", nil},
		"a cluster": {"upstream: {node: node, origins: [{address: \"127.0.0.1:18000\"}]}\n" +
			`cluster: {name: c, address: "127.0.0.1:15020", gossip: "127.0.0.1:7946", join: ["relay-peers:7946"]}` + "\n", nil},
		"a cluster on all IPv6 addresses": {"upstream: {node: node, origins: [{address: \"127.0.0.1:18000\"}]}\n" +
			`cluster: {name: c, address: "127.0.0.1:15020", gossip: "[::]:7946", gossip_key_file: k}` + "\n", []string{
			"2:56: cluster.gossip: [::]:7946 listens at all addresses; set cluster.advertise to the one that others reach",
		}},
		"a cluster that advertises all addresses": {"upstream: {node: node, origins: [{address: \"127.0.0.1:18000\"}]}\n" +
			`cluster: {name: c, address: "127.0.0.1:15020", gossip_key_file: k, advertise: "0.0.0.0"}` + "\n", []string{
			`2:79: cluster.advertise: must be an IP address that others reach, but is "0.0.0.0"`,
		}},
		"a cluster that advertises an IPv6 address": {"upstream: {node: node, origins: [{address: \"127.0.0.1:18000\"}]}\n" +
			`cluster: {name: c, address: "127.0.0.1:15020", gossip: "[::]:7946", gossip_key_file: k, advertise: "fd00::1"}` + "\n", nil},
		"a cluster without TLS, keys and node": {origin + "cluster: {name: c}\n", []string{
			"2:3: upstream.node: must not be empty in a cluster, because the first client's node would change with the owner; write node to send that of the first client",
			"3:10: cluster.address: 0.0.0.0:15020 is not a loopback address; set cluster.tls",
			"3:10: cluster.gossip: 0.0.0.0:7946 is not a loopback address; set cluster.gossip_key_file",
		}},
		"a cluster with faults": {"upstream: {node: node, origins: [{address: \"127.0.0.1:18000\"}]}\n" +
			`cluster: {name: c, gossip: "localhost:7946", advertise: here, join: [peers], gossip_key_file: k, tls: {cert_file: c, key_file: k}}` + "\n", []string{
			"2:10: cluster.identity: is missing: it says which certificates are those of members",
			`2:28: cluster.gossip: must be an IP address with a port, but is "localhost:7946"`,
			`2:57: cluster.advertise: must be an IP address that others reach, but is "here"`,
			`2:70: cluster.join[0]: must be host:port, but is "peers"`,
			"2:103: cluster.tls: needs cert_file, key_file and ca_file: members prove themselves to each other",
		}},
		"a collector over gRPC": {origin + "tracing: {otlp_endpoint: \"collector:4317\"}\n",
			[]string{`3:26: tracing.otlp_endpoint: must be the URL of a collector for OTLP over HTTP, such as http://collector:4318, but is "collector:4317"`}},
		"a collector over TLS":     {origin + "tracing: {otlp_endpoint: \"https://collector\"}\n", nil},
		"a collector in the clear": {origin + "tracing: {otlp_endpoint: \"http://collector:4318/\"}\n", nil},
		"a token":                  {origin + "admin: {address: \":19000\", token_file: t}\n", nil},
		"localhost":                {origin + "admin: {address: \"localhost:19000\", grpc_address: \"[::1]:1\"}\n", nil},
		"the same port": {origin + "downstream: {rest_address: \"127.0.0.1:15010\"}\nadmin: {address: \"127.0.0.1:0\", grpc_address: \"127.0.0.1:0\"}\n",
			[]string{"3:28: downstream.rest_address: 127.0.0.1:15010 is already used by downstream.address"}},
		"the same port of all addresses": {origin + `downstream: {address: "127.0.0.1:1", rest_address: "0.0.0.0:1"}
admin: {address: "[::1]:1", grpc_address: "localhost:1"}
`, []string{
			"3:52: downstream.rest_address: 0.0.0.0:1 has the same port as downstream.address, which is 127.0.0.1:1",
			"4:43: admin.grpc_address: localhost:1 has the same port as downstream.address, which is 127.0.0.1:1",
		}},
		"one port of several addresses": {origin + `downstream: {address: "10.0.0.1:1", rest_address: "127.0.0.1:1"}
admin: {address: "[::1]:1", grpc_address: "127.0.0.2:1"}
`, nil},
		"all addresses come first": {origin + "downstream: {address: \":1\", rest_address: \"relay.example:1\"}\n",
			[]string{"3:43: downstream.rest_address: relay.example:1 has the same port as downstream.address, which is :1"}},
		"tokens": {`upstream:
  node: node
  origins:
    - {address: "xds.example:1", token_file: t}
    - {address: "dns:///xds.example", token: representative}
    - {address: "127.0.0.1:1", token: representative, token_file: t}
    - {address: "xds.example:2", token_file: t, token_plaintext: true}
    - {address: "xds.example:3", token_file: t, tls: {}}
    - {address: "unix:///x", token: eyJh}
    - {address: "file:///x", token_file: t}
    - {address: "unix-1.example:1", token_file: t}
    - {address: "dns:localhost:1", token_file: t}
downstream:
  listeners:
    - {address: "127.0.0.1:1", tokens: {audiences: [a], on_expiry: now}}
    - {address: "127.0.0.1:2", tokens: {issuer: i}}
    - {address: "127.0.0.1:3", tokens: {issuer: i, audiences: [a], jwks_file: f, jwks_url: "https://x"}}
    - {address: "127.0.0.1:4", tokens: {issuer: i, audiences: [a], jwks_url: "http://x"}}
    - {address: "127.0.0.1:5", tokens: {issuer: i, audiences: [a], jwks_url: "http://127.0.0.1/x"}}
    - {address: "127.0.0.1:6", tokens: {issuer: i, audiences: [""], jwks_file: f, jwks_ca_file: c}}
    - {address: "127.0.0.1:7", tokens: {issuer: i, audiences: [a], jwks_url: "https://u:p@x/"}}
`, []string{
			`2:9: upstream.node: cannot be combined with upstream.origins[1].token: the origin would get a client's token with another node`,
			`2:9: upstream.node: cannot be combined with upstream.origins[2].token: the origin would get a client's token with another node`,
			`4:46: upstream.origins[0].token_file: needs upstream.origins[0].tls, because the token would cross the network in plaintext; or set token_plaintext: true`,
			`5:46: upstream.origins[1].token: needs upstream.origins[1].tls, because the token would cross the network in plaintext; or set token_plaintext: true`,
			`5:46: upstream.origins[1].token: needs downstream.listeners[0].tokens: the relay passes on only tokens that it has verified`,
			`6:39: upstream.origins[2].token: cannot be combined with token_file; use only one of them`,
			`6:39: upstream.origins[2].token: needs downstream.listeners[0].tokens: the relay passes on only tokens that it has verified`,
			`9:37: upstream.origins[5].token: must be representative or empty; a token itself belongs into the file of token_file`,
			`10:42: upstream.origins[6].token_file: cannot be set for a directory`,
			`11:49: upstream.origins[7].token_file: needs upstream.origins[7].tls, because the token would cross the network in plaintext; or set token_plaintext: true`,
			`15:40: downstream.listeners[0].tokens.issuer: is missing; without it, no token is accepted`,
			`15:68: downstream.listeners[0].tokens.on_expiry: must be keep or end, but is "now"`,
			`16:40: downstream.listeners[1].tokens.audiences: must name the audiences of which a token has one: otherwise a token for another service would be accepted`,
			`16:40: downstream.listeners[1].tokens.jwks_file: is missing; set it or jwks_url, from which the issuer's keys are read`,
			`17:92: downstream.listeners[2].tokens.jwks_url: cannot be combined with jwks_file; use only one of them`,
			`18:78: downstream.listeners[3].tokens.jwks_url: must be https: over plaintext, another host could give its own keys`,
			`20:40: downstream.listeners[5].tokens.jwks_url: is missing; jwks_ca_file and jwks_token_file are for it`,
			`20:63: downstream.listeners[5].tokens.audiences: must name the audiences of which a token has one: otherwise a token for another service would be accepted`,
			`21:78: downstream.listeners[6].tokens.jwks_url: must have no user and no password; jwks_token_file may have a token for it`,
		}},
		"listeners": {origin + `downstream:
  address: 127.0.0.1:1
  identity: "true"
  listeners:
    - {address: "127.0.0.1:2", secrets: maybe}
    - {address: "127.0.0.1:2", tls: {client_ca_file: ca}}
    - {identity: "true"}
`, []string{
			"4:12: downstream.address: cannot be combined with downstream.listeners, which replaces it",
			"5:13: downstream.identity: cannot be combined with downstream.listeners, which replaces it",
			`7:41: downstream.listeners[0].secrets: must be mtls, identity, allow or deny, but is "maybe"`,
			"8:17: downstream.listeners[1].address: 127.0.0.1:2 is already used by downstream.listeners[0].address",
			"8:54: downstream.listeners[1].tls.client_ca_file: needs tls.cert_file: clients prove an identity only over TLS",
			`9:7: downstream.listeners[2].address: must be host:port, but is ""`,
		}},
		"rules": {origin + `aggregation:
  file: rules.yaml
  rules:
    - match: "true"
    - key: ""
    - {key: [node.id, " "]}
    - {key: []}
`, []string{
			"4:9: aggregation.file: cannot be combined with aggregation.rules; use only one of them",
			"6:7: aggregation.rules[0].key: is missing; must be an expression or a list of expressions",
			"7:12: aggregation.rules[1].key[0]: is empty; the relay would refuse every node",
			"8:23: aggregation.rules[2].key[1]: is empty; the relay would refuse every node",
			"9:13: aggregation.rules[3].key: is missing; must be an expression or a list of expressions",
		}},
		"certificates": {origin + "downstream: {tls: {key_file: k}}\nadmin: {tls: {cert_file: c}}\n", []string{
			"3:19: downstream.tls.cert_file: is missing; key_file needs it",
			"4:14: admin.tls.key_file: is missing; cert_file needs it",
		}},
	} {
		_, err := Load(write(t, c.text), nil)
		if got := all(t, err); !slices.Equal(got, c.want) {
			t.Errorf("%s:\n got %q\nwant %q", name, got, c.want)
		}
	}
}

// A mapping for TLS is never plaintext by mistake. For an origin it is TLS; for listeners an empty one
// is a fault.
func TestEmptyTLS(t *testing.T) {
	for text, want := range map[string]string{
		"downstream: {tls: {}}": "2:19: downstream.tls: is empty; set cert_file and key_file, or remove the key for plaintext",
		"downstream:\n  tls:\n    # cert_file: c\n    key_file:\n":                   "5:5: downstream.tls: is empty; set cert_file and key_file, or remove the key for plaintext",
		"downstream: {listeners: [{address: \"a:1\"}, {address: \"a:2\", tls: {}}]}": "2:66: downstream.listeners[1].tls: is empty; set cert_file and key_file, or remove the key for plaintext",
		"admin: {tls: {}}": "2:14: admin.tls: is empty; set cert_file and key_file, or remove the key for plaintext",
		"admin: {tls: {cert_file: \"\"}}\ndownstream: {tls: }": "",
	} {
		file := write(t, "upstream: {origins: [{address: \"a:1\"}]}\n"+text)
		_, err := Load(file, nil)
		switch {
		case want == "" && err != nil, want != "" && (err == nil || err.Error() != file+":"+want):
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	t.Run("with a variable", func(t *testing.T) {
		t.Setenv("RELAY_ADMIN_TLS_CERT_FILE", "c")
		t.Setenv("RELAY_ADMIN_TLS_KEY_FILE", "k")
		load(t, "upstream: {origins: [{address: \"a:1\"}]}\nadmin: {tls: {}}")
	})
	cfg := load(t, "upstream: {origins: [{address: \"a:1\", tls: {}}, {address: \"a:2\", tls: {ca_file: \"\"}}, {address: \"a:3\"}, {address: \"a:4\", tls: }]}")
	for i, want := range []*ClientTLS{{}, {}, nil, nil} {
		if got := cfg.Upstream.Origins[i].TLS; !reflect.DeepEqual(got, want) {
			t.Errorf("origin %d: %+v, want %+v", i, got, want)
		}
	}
}
