package config

import (
	"fmt"
	"slices"
	"testing"
)

func TestDiff(t *testing.T) {
	const base = "upstream: {origins: [{address: 'a:1'}]}\n"
	for _, c := range []struct {
		was, is string
		want    []string
	}{
		{"", "# a comment\n", nil},
		{"", "downstream: {drain: 30s, listeners: []}\nlog: {level: info}\n", nil}, // the defaults
		{"log: {level: debug}\ndownstream: {limits: {keys: 3}}\n", "", []string{"downstream.limits.keys", "log.level"}},
		{"aggregation: {rules: [{key: node.id}]}\n", "aggregation: {rules: [{key: [node.id], types: [EDS]}]}\n", []string{"aggregation.rules[0].types"}},
		{"aggregation: {rules: [{key: node.id}]}\n", "aggregation: {rules: [{key: node.id}, {key: node.cluster}]}\n", []string{"aggregation.rules"}},
		{"", "aggregation: {rules: [{key: node.cluster}]}\n", nil},
		{"downstream: {listeners: [{address: ':1'}, {address: ':2'}]}\n", "downstream: {listeners: [{address: ':1'}, {address: ':2', secrets: deny, tls: {cert_file: c, key_file: k}}]}\n",
			[]string{"downstream.listeners[1].tls.cert_file", "downstream.listeners[1].tls.key_file", "downstream.listeners[1].secrets"}},
	} {
		var both [2]*Config
		for i, text := range []string{c.was, c.is} {
			var err error
			if both[i], err = Parse("relay.yaml", []byte(base+text), nil); err != nil {
				t.Fatal(err)
			}
		}
		if got := Diff(both[0], both[1]); !slices.Equal(got, c.want) {
			t.Errorf("%q to %q: %q, want %q", c.was, c.is, got, c.want)
		}
	}
}

func TestFiles(t *testing.T) {
	c, err := Parse("/d/relay.yaml", []byte(`
upstream: {origins: [{address: 'a:1', tls: {ca_file: ca, cert_file: /x/cert, key_file: /x/key}}]}
downstream: {tls: {cert_file: /x/cert, key_file: /x/key}}
aggregation: {file: rules.yaml}
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(c.Files()), "[/x/cert /x/key /d/ca /d/rules.yaml]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
