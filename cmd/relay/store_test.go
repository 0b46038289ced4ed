package main

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"xdsrelay/config"
	"xdsrelay/internal/relay"
	"xdsrelay/internal/store"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/logging"
	"xdsrelay/internal/xdstest"
)

// A directory that cannot be used is a warning of validate with its place, and serve starts
// without the store. validate creates none and locks none.
func TestStorePath(t *testing.T) {
	const conf = "upstream: {origins: [{address: 'file:none'}]}\ndownstream: {address: '127.0.0.1:0'}\nadmin: {address: ''}\nstore:\n  path: "
	dir := xdstest.Files(t, map[string]string{"good.yaml": conf + "new/one\n", "bad.yaml": strings.Replace(conf, "admin: {address: ''}", "admin: {address: '127.0.0.1:0'}", 1) + "bad.yaml\n"})
	code, out, _ := runRelay("validate", "--config", filepath.Join(dir, "good.yaml"))
	if _, err := os.Stat(filepath.Join(dir, "new")); code != 0 || err == nil {
		t.Errorf("%d %s; %v", code, out, err)
	}
	at := filepath.Join(dir, "bad.yaml") + ":5: store.path: warning: " + filepath.Join(dir, "bad.yaml") + " is not a directory"
	if code, out, _ := runRelay("validate", "--config", filepath.Join(dir, "bad.yaml")); code != 0 || !strings.Contains(out, at) {
		t.Errorf("%d %s", code, out)
	}
	without := running(t, filepath.Join(dir, "bad.yaml"))
	if _, out, _ := runRelay("status", "--admin", without); !strings.Contains(out, "! the store "+filepath.Join(dir, "bad.yaml")+" is off: ") {
		t.Errorf("%s", out)
	}
	// Access for other users is a warning.
	open := xdstest.Files(t, map[string]string{"open.yaml": conf + "kept\n"})
	for mode, want := range map[os.FileMode]string{0o700: "", 0o750: "other users may look into ", 0o707: "other users may write into "} {
		kept := filepath.Join(open, "kept")
		if err := errors.Join(os.MkdirAll(kept, 0o700), os.Chmod(kept, mode)); err != nil {
			t.Fatal(err)
		}
		code, out, _ := runRelay("validate", "--config", filepath.Join(open, "open.yaml"))
		at := filepath.Join(open, "open.yaml") + ":5: store.path: warning: "
		if code != 0 || (want != "") != strings.Contains(out, "store.path") || want != "" && !strings.Contains(out, at+want+kept) {
			t.Errorf("%v: %d %s", mode, code, out)
		}
	}
	// The store is in use: serve does not start, and validate ignores it.
	path := filepath.Join(dir, "new", "one")
	m, err := telemetry.New(telemetry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(store.Options{Path: path, Metrics: &m.Store, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if code, _, errs := runRelay("serve", "--config", filepath.Join(dir, "good.yaml")); code == 0 || !strings.Contains(errs, path+": in use by another relay") {
		t.Errorf("%d %s", code, errs)
	}
	if code, out, _ := runRelay("validate", "--config", filepath.Join(dir, "good.yaml")); code != 0 {
		t.Errorf("%d %s", code, out)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A start that fails later closes the store.
func TestStoreIsGivenBack(t *testing.T) {
	defer goleak.VerifyNone(t)
	dir := xdstest.Files(t, map[string]string{"relay.yaml": "upstream: {origins: [{address: 'file:.'}]}\n" +
		"downstream: {address: '127.0.0.1:0', rest_address: '192.0.2.1:1'}\nadmin: {address: ''}\nstore: {path: kept}\n"})
	for range 2 { // the second Open would fail if the first were not closed
		cfg, err := config.Load(filepath.Join(dir, "relay.yaml"), nil)
		if err != nil {
			t.Fatal(err)
		}
		log, level, err := logging.New(io.Discard, cfg.Log)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = relay.New(cfg, log, level, ""); err == nil || !strings.Contains(err.Error(), "rest_address") {
			t.Errorf("%v", err)
		}
	}
}
