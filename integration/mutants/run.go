package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
	for _, pkg := range slices.Sorted(maps.Keys(runs)) {
		// All of a package at once, since building takes longest; but each has to
		// have a test.
		out, err := test(ctx, root, pkg, "10m", nil, "-run", strings.Join(runs[pkg], "|"))
		if err != nil {
			return fmt.Errorf("the tests of %s fail on the code as it is: %w\n%s", pkg, err, out)
		}
		tests, err := test(ctx, root, pkg, "10m", nil, "-list", ".")
		if err != nil {
			return fmt.Errorf("list the tests of %s: %w\n%s", pkg, err, tests)
		}
		for _, run := range runs[pkg] {
			names, _, _ := strings.Cut(run, "/") // what follows is a subtest's
			is, err := regexp.Compile(names)
			if err != nil {
				return fmt.Errorf("%s: test %s: %w", pkg, run, err)
			}
			if !slices.ContainsFunc(strings.Split(tests, "\n"), func(name string) bool {
				return (strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz")) && is.MatchString(name)
			}) {
				return fmt.Errorf("%s has no test %s", pkg, run)
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
	flags := strings.TrimSpace(os.Getenv("GOFLAGS") + " -overlay=" + overlay)
	out, err := test(ctx, root, m.pkg, perMutant, []string{"GOFLAGS=" + flags}, "-failfast", "-run", m.run)
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
	case strings.Contains(out, "panic: test timed out after "):
		r.verdict = hangs
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

// cheap is how test binaries are built: two thirds of a mutant's time is the
// compiler's and the linker's. Neither debug information nor inlining matters
// here, and vet would look at each mutant anew.
var cheap = []string{"-vet=off", "-gcflags=./...=-dwarf=false -l", "-ldflags=-s -w"}

// test runs a package's tests, as the arguments say. The environment reaches the
// go commands that tests run themselves, so that the binaries which they build
// are mutants as well.
func test(ctx context.Context, root, pkg, timeout string, env []string, args ...string) (string, error) {
	args = slices.Concat([]string{"test", "-count=1", "-timeout=" + timeout}, cheap, args, []string{pkg})
	c := exec.CommandContext(ctx, "go", args...)
	c.Dir = root
	c.Env = append(os.Environ(), env...)
	out, err := c.CombinedOutput()
	return string(out), err
}
