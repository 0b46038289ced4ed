package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const module = "xdsrelay"

// proof is a test that bears a rule's id, and what of it passed.
type proof struct {
	rule     string
	file     string // from the module's root
	name     string // of the test, with the script's
	places   map[place]bool
	variants map[string]bool // where it says no more than "sotw" or "delta"
	failed   []string        // tests and subtests
	skipped  []string
	passed   bool // something of it did
}

var (
	bears    = regexp.MustCompile(`^Test((?:P[0-9]+_)+)`)
	oneID    = regexp.MustCompile(`[Pp][0-9]+`)
	scripted = regexp.MustCompile(`^((?:p[0-9]+-)+)`)
	pair     = regexp.MustCompile(`^(sotw|delta)-(sotw|delta)$`)
)

// ids are the rules that an element of a test's name bears.
func ids(element string) []string {
	m := bears.FindStringSubmatch(element)
	if m == nil {
		m = scripted.FindStringSubmatch(element)
	}
	if m == nil {
		return nil
	}
	return oneID.FindAllString(strings.ToUpper(m[1]), -1)
}

// sources are the files of the module's tests: of each function by package and
// name, and of each script by package and name.
func sources(root string) (map[[2]string]string, error) {
	out := make(map[[2]string]string)
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			_, other := os.Stat(filepath.Join(name, "go.mod"))
			if rel != "." && (other == nil || strings.HasPrefix(d.Name(), ".")) {
				return fs.SkipDir
			}
			return nil
		}
		dir, base := path.Dir(rel), path.Base(rel)
		if pkg, _, ok := strings.Cut(dir, "/testdata/"); ok {
			if script, ok := strings.CutSuffix(base, ".txt"); ok && ids(script) != nil {
				out[[2]string{module + "/" + pkg, script}] = rel
			}
			return nil
		}
		if !strings.HasSuffix(base, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				out[[2]string{module + "/" + dir, f.Name.Name}] = rel
			}
		}
		return nil
	})
	return out, err
}

// gather makes proofs of results. It also returns what is wrong with them:
// tests that bear a rule's id and were not run.
func gather(results []result, files map[[2]string]string) ([]*proof, []string) {
	proofs := make(map[string]*proof)
	ran := make(map[[2]string]bool)
	for _, r := range results {
		elements := strings.Split(r.Test, "/")
		for i, element := range elements {
			for _, id := range ids(element) {
				of := [2]string{r.Package, element}
				ran[of] = true
				file, ok := files[of]
				if !ok {
					file = files[[2]string{r.Package, elements[0]}]
				}
				name := strings.Join(elements[:i+1], "/")
				key := id + " " + r.Package + " " + name
				p := proofs[key]
				if p == nil {
					p = &proof{rule: id, file: file, name: name, places: make(map[place]bool), variants: make(map[string]bool)}
					proofs[key] = p
				}
				p.add(r, elements[i+1:])
			}
		}
	}
	var out []*proof
	for _, p := range proofs {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b *proof) int {
		return strings.Compare(a.file+" "+a.name+" "+a.rule, b.file+" "+b.name+" "+b.rule)
	})
	var missing []string
	for of, file := range files {
		if ids(of[1]) != nil && !ran[of] {
			missing = append(missing, fmt.Sprintf("%s: %s was not run", file, of[1]))
		}
	}
	slices.Sort(missing)
	return out, missing
}

// add takes a result of the test, or of one of its subtests, whose further
// elements these are.
func (p *proof) add(r result, further []string) {
	switch r.Result {
	case "fail":
		p.failed = append(p.failed, r.Test)
		return
	case "skip":
		p.skipped = append(p.skipped, r.Test)
		return
	}
	p.passed = true
	for i, element := range further {
		if element == "sotw" || element == "delta" {
			p.variants[element] = true
		}
		m := pair.FindStringSubmatch(element)
		if m == nil || i+1 == len(further) {
			continue
		}
		if at := (place{m[1], m[2], further[i+1]}); slices.Contains(places(), at) {
			p.places[at] = true
		}
	}
}
