package xdstest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// PythonEnv returns the virtual environment that `make clients` fills with
// Envoy, grpcio and axe-core (tools/python/requirements.txt). Where it is missing or has
// other versions the test is skipped, but with CI set it fails.
func PythonEnv(t testing.TB) string {
	t.Helper()
	root, err := repositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, ".cache", "python")
	pinned, err := os.ReadFile(filepath.Join(root, requirements))
	if err != nil {
		t.Fatal(err)
	}
	// The last step of `make clients` copies the file.
	if installed, err := os.ReadFile(filepath.Join(dir, "complete")); err == nil && bytes.Equal(installed, pinned) {
		return dir
	}
	const reason = "Envoy, grpcio and axe-core are not installed in the pinned versions; `make clients` installs them and needs Python 3 and a network"
	if os.Getenv("CI") != "" {
		t.Fatal(reason)
	}
	t.Skip(reason)
	return ""
}

// Envoy returns the path of Envoy's binary in the pinned wheel. Without it the test is skipped, as PythonEnv
// says.
func Envoy(t testing.TB) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(PythonEnv(t), "lib", "python3*", "site-packages", "envoy", "_bin", "envoy"))
	if err != nil || len(found) != 1 {
		t.Fatalf("Envoy's binary in the virtual environment: found %q, error %v", found, err)
	}
	return found[0]
}

var requirements = filepath.Join("tools", "python", "requirements.txt")

// repositoryRoot is the directory above the test's own that has the requirements. The nearest go.mod
// would not do: integration/browser is a module of its own.
func repositoryRoot() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, requirements)); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no %s above the test", requirements)
		}
	}
	return "", err
}
