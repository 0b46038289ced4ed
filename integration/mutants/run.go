package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
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
func (b *built) sound(ctx context.Context, all []*mutant) error {
	runs := make(map[string][]string)
	for _, m := range all {
		if !slices.Contains(runs[m.pkg], m.run) {
			runs[m.pkg] = append(runs[m.pkg], m.run)
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(runs)) {
		tests, err := b.test(ctx, pkg, "", "1m", "-test.list=.")
		if err != nil {
			return fmt.Errorf("list the tests of %s: %w\n%s", pkg, err, tests)
		}
		for _, run := range runs[pkg] {
			names, _, _ := strings.Cut(run, "/") // what follows is a subtest's
			is, err := regexp.Compile(names)
			if err != nil {
				return fmt.Errorf("%s: test %s: %w", pkg, run, err)
			}
			if !slices.ContainsFunc(strings.Split(tests, "\n"), is.MatchString) {
				return fmt.Errorf("%s has no test %s", pkg, run)
			}
		}
		if out, err := b.test(ctx, pkg, "", "10m", "-test.run="+strings.Join(runs[pkg], "|")); err != nil {
			return fmt.Errorf("the tests of %s fail on the code as it is: %w\n%s", pkg, err, out)
		}
	}
	return nil
}

// try runs the mutant's tests with the mutant in the code.
func (b *built) try(ctx context.Context, m *mutant) (result, error) {
	if out := b.broken[m]; out != "" {
		return result{verdict: broken, output: out}, nil
	}
	began := time.Now()
	var out string
	var err error
	if b.apart[m] {
		out, err = b.alone(ctx, m)
	} else {
		out, err = b.test(ctx, m.pkg, m.place, perMutant, "-test.failfast", "-test.run="+m.run)
	}
	r := result{output: out, took: time.Since(began)}
	if failed := fails.FindStringSubmatch(out); failed != nil {
		r.by = failed[1]
	}
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
	case !says.MatchString(out):
		return r, fmt.Errorf("%s: no test says why it failed: %w\n%s", m.place, err, out)
	default:
		r.verdict = killed
	}
	return r, nil
}

// fails matches the name of a test that failed.
var fails = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)

// says matches what a test that failed says, or a program that broke down.
var says = regexp.MustCompile(`(?m)^\s*--- FAIL: |^panic: |^fatal error: |goleak: Errors|goroutines left behind`)

// alone builds the mutant by itself and runs its tests.
func (b *built) alone(ctx context.Context, m *mutant) (string, error) {
	_, is, err := m.texts(b.root)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(b.dir, "alone")
	if err != nil {
		return "", err
	}
	overlay, err := writeOverlay(dir, b.root, m.file, is)
	if err != nil {
		return "", err
	}
	args := slices.Concat([]string{"test", "-count=1", "-timeout=" + perMutant}, cheap, []string{"-failfast", "-skip=" + b.skip, "-run", m.run, m.pkg}, histories(m.pkg))
	c := exec.CommandContext(ctx, "go", args...)
	c.Dir = b.root
	c.Env = append(os.Environ(), overlaid(overlay))
	out, err := c.CombinedOutput()
	return string(out), err
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

// histories are what random tests play. Whether a mutant of the whole relay is
// noticed is a matter of luck: there it is tried more often.
func histories(pkg string) []string {
	if path.Base(pkg) == "model" {
		return []string{"-rapid.checks=1500"}
	}
	return nil
}

// cheap is how test binaries are built: neither debug information nor inlining
// matters here, and vet would look at each mutant anew. All faults are told.
var cheap = []string{"-vet=off", "-gcflags=./...=-dwarf=false -l -e", "-ldflags=-s -w"}

// overlaid reaches the go commands that tests run themselves, so that the
// binaries which they build are mutants as well.
func overlaid(overlay string) string {
	return "GOFLAGS=" + strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay)
}
