package xdstest

import (
	"os"
	"path/filepath"
	"testing"
)

// WriteFile writes a file that only its owner may read, or fails the test.
func WriteFile(t testing.TB, file, text string) {
	t.Helper()
	NoError(t, os.WriteFile(file, []byte(text), 0o600))
}

// Files writes files into a new directory and returns that. content has their texts by name.
func Files(t testing.TB, content map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range content {
		WriteFile(t, filepath.Join(dir, name), text)
	}
	return dir
}
