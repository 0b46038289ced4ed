package validation

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"xdsrelay/config"
	"xdsrelay/internal/aggregator"
	"xdsrelay/internal/expr"
)

// Rules that read what only a certificate proves need a listener that verifies certificates.
func TestRulesNeedCertificates(t *testing.T) {
	for downstream, warns := range map[string]bool{"{}": true, "{tls: {cert_file: c, key_file: k, client_ca_file: ca}}": false} {
		file := filepath.Join(t.TempDir(), "r.yaml")
		text := "downstream: " + downstream + "\nupstream: {origins: [{address: \"a:1\"}]}\naggregation: {rules: [{key: 'peer.uri_sans[0]'}]}\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := config.Load(file, nil)
		if err != nil {
			t.Fatal(err)
		}
		rules, err := aggregator.Compile(cfg)
		if err != nil {
			t.Fatal(err)
		}
		got := Warnings(cfg, &Compiled{Rules: rules, Identities: make([]*expr.Predicate, len(cfg.Downstream.Listen()))})
		if said := strings.Contains(got.Error(), "aggregation.rules[0]: uses peer.uri_sans, but clients prove no identity"); said != warns {
			t.Errorf("%s: %v", downstream, got)
		}
	}
}
