package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// perMutant is how long the tests of one mutant may take. One that hangs its
// test is noticed by that.
const perMutant = "120s"

// sound runs the tests of all mutants on the code as it is: one that fails, or
// is not there, would kill whatever is tried.
func sound(ctx context.Context, root string, all []*mutant) error {
	runs := make(map[string][]string)
	for _, m := range all {
		if !slices.Contains(runs[m.pkg], m.run) {
			runs[m.pkg] = append(runs[m.pkg], m.run)
		}
	}
	for pkg, of := range runs {
		// All of a package at once, since building takes longest; but each has to
		// have a test.
		out, err := test(ctx, root, pkg, strings.Join(of, "|"), "10m", nil)
		if err != nil {
			return fmt.Errorf("the tests of %s fail on the code as it is: %w\n%s", pkg, err, out)
		}
		for _, run := range of {
			out, err := command(ctx, root, nil, "test", "-list", run, pkg).CombinedOutput()
			if err != nil || !strings.HasPrefix(string(out), "Test") && !strings.HasPrefix(string(out), "Fuzz") {
				return fmt.Errorf("%s has no test %s\n%s", pkg, run, out)
			}
		}
	}
	return nil
}

// try runs the mutant's tests with the mutant in the code.
func (m *mutant) try(ctx context.Context, root string) (result, error) {
	began := time.Now()
	text, err := m.apply(root)
	if err != nil {
		return result{}, err
	}
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return result{}, fmt.Errorf("%s: %w", m.place, err)
	}
	defer os.RemoveAll(dir)
	overlay, err := writeOverlay(dir, root, m.file, text)
	if err != nil {
		return result{}, fmt.Errorf("%s: %w", m.place, err)
	}
	out, err := test(ctx, root, m.pkg, m.run, perMutant, []string{"GOFLAGS=-overlay=" + overlay})
	r := result{output: out, took: time.Since(began)}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return r, ctx.Err()
	case err == nil:
		r.verdict = survives
	case !errors.As(err, &exit):
		return r, fmt.Errorf("%s: %w", m.place, err)
	case strings.Contains(out, "[build failed]") || strings.Contains(out, "[setup failed]"):
		r.verdict = broken
	default:
		r.verdict = killed
	}
	return r, nil
}

// writeOverlay puts the changed file and what names it into dir.
func writeOverlay(dir, root, file, text string) (string, error) {
	changed := filepath.Join(dir, "changed.go")
	if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
		return "", err
	}
	abs, err := filepath.Abs(filepath.Join(root, filepath.FromSlash(file)))
	if err != nil {
		return "", err
	}
	spec, err := json.Marshal(map[string]map[string]string{"Replace": {abs: changed}})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, spec, 0o600)
}

// test runs tests. The environment reaches the go commands that tests run
// themselves, so that the binaries which they build are mutants as well.
func test(ctx context.Context, root, pkg, run, timeout string, env []string) (string, error) {
	out, err := command(ctx, root, env, "test", "-count=1", "-timeout="+timeout, "-run", run, pkg).CombinedOutput()
	return string(out), err
}

func command(ctx context.Context, root string, env []string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, "go", args...)
	c.Dir = root
	c.Env = append(os.Environ(), env...)
	return c
}
