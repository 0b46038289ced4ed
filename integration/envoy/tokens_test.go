package envoy

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"xdsrelay/internal/fanout/tokens/tokenstest"
	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/xdstest"
)

// Envoy sends the token in a file: with envoy_grpc by the upstream filter credential_injector, with
// google_grpc by file_based_metadata. The stream ends when its token expires, and the next one has
// the new token. Envoy keeps what it has meanwhile.
func TestTokens(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text   string // of the file; $ is the token
		tls    bool   // google_grpc sends credentials only over TLS
		change func(b bootstrap, relay, dir string)
	}{
		"envoy_grpc": {`{"resources": [{"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret", "name": "token",
			"generic_secret": {"secret": {"inline_string": "Bearer $"}}}]}`, false, injectCredential},
		"google_grpc": {"$", true, func(b bootstrap, relay, dir string) {
			b.at("dynamic_resources", "ads_config")["grpc_services"] = []any{bootstrap{"google_grpc": bootstrap{
				"target_uri": relay, "stat_prefix": "relay",
				"channel_credentials": bootstrap{"ssl_credentials": bootstrap{"root_certs": bootstrap{"filename": filepath.Join(dir, "ca")}}},
				"call_credentials": []any{bootstrap{"from_plugin": bootstrap{"name": "envoy.grpc_credentials.file_based_metadata", "typed_config": bootstrap{
					"@type":       "type.googleapis.com/envoy.config.grpc_credential.v3.FileBasedMetadataConfig",
					"secret_data": bootstrap{"filename": filepath.Join(dir, "token.json")}, "header_key": "authorization", "header_prefix": "Bearer "}}}},
				"credentials_factory_name": "envoy.grpc_credentials.file_based_metadata"}}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			xdstest.PythonEnv(t) // skips before anything is built
			issuer, ca, dir := tokenstest.New(t), tlstest.NewAuthority(t), t.TempDir()
			write := func(account string, valid time.Duration) {
				claims := tokenstest.Claims(account)
				claims["exp"] = time.Now().Add(valid).Unix()
				tlstest.File(t, dir, "new", []byte(strings.Replace(c.text, "$", issuer.Token(claims), 1)))
				if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "token.json")); err != nil {
					t.Fatal(err)
				}
			}
			tlstest.File(t, dir, "ca", ca.PEM())
			o := xdstest.StartOrigin(t, xdstest.OriginOptions{Cache: xdstest.Linear})
			o.Put("edge", staticCluster("a"))
			config := xdstest.QuickConfig().With(xdstest.Config{"upstream.origins": xdstest.Origins(o.Address), "downstream.tokens": map[string]any{
				"issuer": tokenstest.URL, "audiences": []string{tokenstest.Audience}, "jwks_file": issuer.File, "on_expiry": "end"}})
			if c.tls {
				cert, key := ca.Pair(t, tlstest.CN("relay"), tlstest.Loopback()).Write(t, dir, "relay")
				config["downstream.tls"] = map[string]any{"cert_file": cert, "key_file": key}
			}
			r := xdstest.StartRelay(t, config)
			b := adsDelta.bootstrap(t, r.Address)
			c.change(b, r.Address, dir)
			write("first", 10*time.Second)
			e := startEnvoy(t, "envoy-1", "edge", b)
			identity := func(want string) {
				t.Helper()
				xdstest.Eventually(t, want, func() error {
					if out, err := r.Get("/clients"); err != nil || !strings.Contains(string(out), `"sub:`+want+`"`) {
						return errors.Join(err, errors.New(string(out)))
					}
					return nil
				})
			}
			identity("first")
			e.waitCluster(staticCluster("a"))
			write("second", time.Hour)
			identity("second")
			e.waitCluster(staticCluster("a"))
			o.Put("edge", staticCluster("b"))
			e.waitCluster(staticCluster("b"))
			if n := e.stat("cluster_manager.cluster_removed"); n != 0 {
				t.Errorf("%d clusters were removed", n)
			}
		})
	}
}

// injectCredential puts the filter credential_injector into the cluster of the relay.
func injectCredential(b bootstrap, _, dir string) {
	options := b.cluster("relay").at("typed_extension_protocol_options", "envoy.extensions.upstreams.http.v3.HttpProtocolOptions")
	options["http_filters"] = []any{
		bootstrap{"name": "token", "typed_config": bootstrap{
			"@type":     "type.googleapis.com/envoy.extensions.filters.http.credential_injector.v3.CredentialInjector",
			"overwrite": true,
			"credential": bootstrap{"name": "envoy.http.injected_credentials.generic", "typed_config": bootstrap{
				"@type": "type.googleapis.com/envoy.extensions.http.injected_credentials.generic.v3.Generic",
				"credential": bootstrap{"name": "token", "sds_config": bootstrap{"path_config_source": bootstrap{
					"path": filepath.Join(dir, "token.json"), "watched_directory": bootstrap{"path": dir}}}}}}}},
		bootstrap{"name": "codec", "typed_config": bootstrap{"@type": "type.googleapis.com/envoy.extensions.filters.http.upstream_codec.v3.UpstreamCodec"}},
	}
}
