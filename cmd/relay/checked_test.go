package main

import (
	"path/filepath"
	"strings"
	"testing"

	"xdsrelay/internal/xdstest"
)

// validate, serve and a reload find the same faults with the same places.
func TestFaultsAreTheSameEverywhere(t *testing.T) {
	for what, text := range map[string]string{
		"a value and a rule":     "  drain: -1s\naggregation:\n  rules:\n    - key: nope\n",
		"an unknown key and all": "  drian: 1s\n  identity: nope\nlog: {level: loud}\naggregation: {file: none.yaml}\n",
		"files":                  "  tls: {cert_file: none.crt, key_file: none.key}\n",
		"syntax":                 "  drain: [\n",
	} {
		t.Run(what, func(t *testing.T) {
			const base = "name: r\nlog: {level: error}\nupstream: {origins: [{address: '127.0.0.1:1'}]}\nadmin: {address: '127.0.0.1:0'}\ndownstream:\n  address: 127.0.0.1:0\n"
			o := &operated{TB: t}
			o.configured(base)
			o.start()
			file := filepath.Join(o.dir, "relay.yaml")
			xdstest.WriteFile(t, file, base+text)
			code, said, _ := runRelay("validate", "--config", file)
			if code != 1 || said == "" {
				t.Fatalf("validate: %d %s", code, said)
			}
			if code, _, errs := runRelay("serve", "--config", file); code != 1 || errs != said {
				t.Errorf("serve: %d\n%s, want\n%s", code, errs, said)
			}
			if code, _, errs := runRelay("reload", "--admin", o.admin); code != 1 || !strings.HasPrefix(errs, said+"the relay rejects the configuration") {
				t.Errorf("a reload: %d\n%s, want\n%s", code, errs, said)
			}
		})
	}
}
