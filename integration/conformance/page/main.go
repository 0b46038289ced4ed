package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const usage = `usage: page record FILE GO-TEST-ARGUMENTS...   runs go test and keeps its results
       page write FILES...                     makes docs/conformance.md of results
       page check FILES...                     says what is wrong with it`

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	code, err := run(".", os.Args[1], os.Args[2:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// run does a command in the module whose root this is.
func run(root, command string, args []string) (int, error) {
	switch command {
	case "record":
		return record(args[0], args[1:], os.Stdout)
	case "write", "check":
		return 0, conformance(root, command, args)
	}
	return 0, errors.New(usage)
}

// conformance writes the page, or compares it with what is there.
func conformance(root, command string, records []string) error {
	b, missing, err := read(root, records)
	if err != nil {
		return err
	}
	file := filepath.Join(root, "docs", "conformance.md")
	faults := append(missing, b.faults()...)
	page := b.page()
	if command == "write" {
		if err := os.WriteFile(file, []byte(page), 0o666); err != nil {
			return err
		}
	} else if there, err := os.ReadFile(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	} else if diff := firstDifference(string(there), page); diff != "" {
		faults = append(faults, "docs/conformance.md is stale, `make conformance` makes it anew: "+diff)
	}
	if len(faults) > 0 {
		return fmt.Errorf("conformance:\n  %s", strings.Join(faults, "\n  "))
	}
	return nil
}

// read gathers everything that the page is made of, and what was not run.
func read(root string, records []string) (*book, []string, error) {
	results, err := load(records)
	if err != nil {
		return nil, nil, fmt.Errorf("results of tests, which `make test` keeps: %w", err)
	}
	files, err := sources(root)
	if err != nil {
		return nil, nil, err
	}
	b := new(book)
	if b.rules, err = parseRules(rulesText); err != nil {
		return nil, nil, err
	}
	if b.mutants, err = countMutants(root); err != nil {
		return nil, nil, err
	}
	var missing []string
	b.proofs, missing = gather(results, files)
	b.keep()
	return b, missing, nil
}

// firstDifference shows where two pages part; empty if they do not.
func firstDifference(there, now string) string {
	if there == now {
		return ""
	}
	a, b := strings.Split(there, "\n"), strings.Split(now, "\n")
	for i := 0; ; i++ {
		switch {
		case i >= len(a):
			return fmt.Sprintf("line %d is missing: %s", i+1, b[i])
		case i >= len(b):
			return fmt.Sprintf("line %d is too many: %s", i+1, a[i])
		case a[i] != b[i]:
			return fmt.Sprintf("line %d is\n    %s\n  and should be\n    %s", i+1, a[i], b[i])
		}
	}
}
