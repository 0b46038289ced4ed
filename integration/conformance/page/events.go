package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// event is a line of `go test -json`.
type event struct {
	Action  string
	Package string `json:",omitempty"`
	Test    string `json:",omitempty"`
	Output  string `json:",omitempty"`
}

// result is a test's, as it is kept in a record.
type result struct {
	Package string `json:"package"`
	Test    string `json:"test"`
	Result  string `json:"result"` // pass, fail or skip
}

// record runs go test with these arguments, shows what go test shows, and
// writes the results to a file. It returns go test's exit code.
func record(file string, args []string, out io.Writer) (int, error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
		return 0, err
	}
	// What was there is of another run, should this one be broken off.
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, err
	}
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	results, readErr := follow(pipe, out)
	err = cmd.Wait()
	if readErr != nil {
		return 0, readErr
	}
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		return 0, err
	}
	return cmd.ProcessState.ExitCode(), save(file, results)
}

// follow reads events and shows what go test would show without -json: what the
// packages print, and what failed tests do.
func follow(in io.Reader, out io.Writer) ([]result, error) {
	var results []result
	said := make(map[[2]string][]string) // by package and test, of those that run
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			var e event
			if json.Unmarshal([]byte(line), &e) != nil {
				fmt.Fprint(out, line) // of go itself
			} else if r, done := take(e, said, out); done {
				results = append(results, r)
			}
		}
		if errors.Is(err, io.EOF) {
			return results, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// take handles an event; it reports true for the result of a test.
func take(e event, said map[[2]string][]string, out io.Writer) (result, bool) {
	of := [2]string{e.Package, e.Test}
	switch e.Action {
	case "output", "build-output":
		switch {
		case e.Test != "":
			said[of] = append(said[of], e.Output)
		case e.Output != "PASS\n":
			fmt.Fprint(out, e.Output)
		}
	case "pass", "fail", "skip":
		if e.Test == "" {
			show(e, said, out)
			return result{}, false
		}
		if e.Action == "fail" {
			fmt.Fprint(out, strings.Join(said[of], ""))
		}
		delete(said, of)
		return result{e.Package, e.Test, e.Action}, true
	}
	return result{}, false
}

// show prints what is left of a package that ended: what tests said that had no
// end of their own.
func show(e event, said map[[2]string][]string, out io.Writer) {
	var left [][2]string
	for of := range said {
		if of[0] == e.Package {
			left = append(left, of)
		}
	}
	slices.SortFunc(left, func(a, b [2]string) int { return strings.Compare(a[1], b[1]) })
	for _, of := range left {
		if e.Action == "fail" {
			fmt.Fprint(out, strings.Join(said[of], ""))
		}
		delete(said, of)
	}
}

func save(file string, results []result) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	enc := json.NewEncoder(w)
	for _, r := range results {
		if err := enc.Encode(r); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return errors.Join(w.Flush(), f.Close())
}

// load reads records.
func load(files []string) ([]result, error) {
	var out []result
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		dec := json.NewDecoder(f)
		for {
			var r result
			err := dec.Decode(&r)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, errors.Join(fmt.Errorf("%s: %w", name, err), f.Close())
			}
			out = append(out, r)
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
	return out, nil
}
