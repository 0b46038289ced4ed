package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"xdsrelay/config"
	"xdsrelay/internal/xdstest"
)

// The systemd unit starts a relay with the configuration beside it, reloads it, and leaves it time to
// drain. Only the origin, the addresses and the directories differ. Where systemd is installed, it
// verifies the unit.
func TestSystemdUnit(t *testing.T) {
	t.Parallel()
	const dir = "../deploy/systemd/"
	root := t.TempDir()
	moved := strings.NewReplacer("/usr/local/bin/relay", xdstest.Binary(t), "/etc/xdsrelay", root, "/var/lib/xdsrelay", root,
		"0.0.0.0:15010", "127.0.0.1:0", "0.0.0.0:19000", "127.0.0.1:0", "dns:///control.example.com:18000", "file://"+root)
	read := func(name string) string {
		text, err := os.ReadFile(dir + name)
		if err != nil {
			t.Fatal(err)
		}
		return moved.Replace(string(text))
	}
	put := func(name, text string) string {
		path := filepath.Join(root, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	put("relay.yaml", read("relay.yaml"))
	put("admin.token", "secret-of-operators")
	text := read("xdsrelay.service")
	settings := make(map[string]string)
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(key, "#") {
			settings[key] = value
		}
	}
	arguments := func(key string) []string { return strings.Fields(settings[key])[1:] }

	r := start(t, root, nil, arguments("ExecStart")...)
	if out, code := r.Run(arguments("ExecReload")...); code != 0 {
		t.Errorf("ExecReload: %d, %s", code, out)
	}
	put("relay.yaml", "broken")
	if out, code := r.Run(arguments("ExecReload")...); code == 0 {
		t.Errorf("ExecReload of a file with a fault: %s", out)
	}
	if _, err := os.Stat(filepath.Join(root, "store")); err != nil || settings["StateDirectory"] != "xdsrelay" {
		t.Errorf("the store is not in the StateDirectory %s: %v", settings["StateDirectory"], err)
	}
	seconds, err := strconv.Atoi(settings["TimeoutStopSec"])
	if drain := config.Default().Downstream.Drain; err != nil || time.Duration(seconds)*time.Second < drain+10*time.Second {
		t.Errorf("TimeoutStopSec is %q; the relay drains over %s", settings["TimeoutStopSec"], drain)
	}
	if verify, err := exec.LookPath("systemd-analyze"); err == nil {
		if out, err := exec.Command(verify, "verify", "--man=no", put("xdsrelay.service", text)).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("systemd-analyze verify: %v\n%s", err, out)
		}
	}
}

// The notes of a release are the section of its version in CHANGELOG.md.
func TestReleaseNotes(t *testing.T) {
	t.Parallel()
	notes := func(version string) (string, error) {
		out, err := exec.Command("make", "-s", "-C", "..", "notes", "VERSION="+version).CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	changelog, err := os.ReadFile("../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(changelog), "\n## Unreleased\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if out, err := notes("Unreleased"); err != nil || out != strings.TrimSpace(section) {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := notes("v0.0.0"); err == nil || !strings.Contains(out, "CHANGELOG.md has no section v0.0.0") {
		t.Errorf("without a section: %v, %s", err, out)
	}
}
