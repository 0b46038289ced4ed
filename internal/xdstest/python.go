package xdstest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// PythonEnv returns the virtual environment that `make clients` fills with
// Envoy and grpcio (tools/python/requirements.txt). Where it is missing or has
// other versions the test is skipped, but with CI set it fails.
func PythonEnv(t testing.TB) string {
	t.Helper()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, ".cache", "python")
	pinned, err := os.ReadFile(filepath.Join(root, "tools", "python", "requirements.txt"))
	if err != nil {
		t.Fatal(err)
	}
	// The last step of `make clients` copies the file.
	if installed, err := os.ReadFile(filepath.Join(dir, "complete")); err == nil && bytes.Equal(installed, pinned) {
		return dir
	}
	const reason = "Envoy and grpcio are not installed in the pinned versions; `make clients` installs them and needs Python 3 and a network"
	if os.Getenv("CI") != "" {
		t.Fatal(reason)
	}
	t.Skip(reason)
	return ""
}

// moduleRoot is the directory of go.mod, above the test's own.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod above the test")
		}
	}
	return "", err
}
