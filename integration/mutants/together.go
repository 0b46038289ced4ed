package main

import (
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// chosen names the mutant that a build of all of them is to be.
const chosen = "RELAY_MUTANT"

// variant is what a mutant makes of a function.
type variant struct {
	m    *mutant
	name string // of the function
	text string // its declaration

	// Of the function as it is.
	edits []edit // give all its parameters names, and
	call  edit   // call the variant, if it is chosen
}

// edit of a file: text in place of its bytes from to to.
type edit struct {
	from, to int
	text     string
}

// variant returns what m makes of the one function that it changes; nil if it
// changes anything else, as a constant, and has to be built by itself.
func (m *mutant) variant(was, is string) *variant {
	fset := token.NewFileSet()
	old, err := parser.ParseFile(fset, "was.go", was, parser.SkipObjectResolution)
	if err != nil {
		return nil
	}
	changed, err := parser.ParseFile(fset, "is.go", is, parser.SkipObjectResolution)
	if err != nil || len(old.Decls) != len(changed.Decls) {
		return nil
	}
	at := func(p token.Pos) int { return fset.Position(p).Offset }
	from, to := difference(was, is)
	for i, d := range old.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil || from <= at(f.Body.Lbrace) || to > at(f.Body.Rbrace) {
			continue
		}
		g, ok := changed.Decls[i].(*ast.FuncDecl)
		if !ok || f.Type.TypeParams != nil || f.Name.Name == "init" || f.Name.Name == "_" {
			return nil
		}
		v := &variant{m: m, name: "mutant_" + regexp.MustCompile(`\W`).ReplaceAllString(m.place, "_")}
		v.text = is[at(g.Pos()):at(g.Name.Pos())] + v.name + is[at(g.Name.End()):at(g.End())]
		name := func(list *ast.FieldList) (names []string) {
			for _, field := range list.List {
				if len(field.Names) == 0 {
					names = append(names, fmt.Sprintf("mutantArg%d", at(field.Pos())))
					v.edits = append(v.edits, edit{at(field.Type.Pos()), at(field.Type.Pos()), names[len(names)-1] + " "})
				}
				for _, n := range field.Names {
					names = append(names, n.Name)
					if n.Name == "_" {
						names[len(names)-1] = fmt.Sprintf("mutantArg%d", at(n.Pos()))
						v.edits = append(v.edits, edit{at(n.Pos()), at(n.End()), names[len(names)-1]})
					}
				}
			}
			return names
		}
		call := v.name
		if f.Recv != nil {
			call = name(f.Recv)[0] + "." + call
		}
		args := name(f.Type.Params)
		if n := len(args); n > 0 {
			if _, variadic := f.Type.Params.List[len(f.Type.Params.List)-1].Type.(*ast.Ellipsis); variadic {
				args[n-1] += "..."
			}
		}
		call += "(" + strings.Join(args, ", ") + ")"
		if f.Type.Results == nil {
			call += "; return"
		} else {
			call = "return " + call
		}
		brace := at(f.Body.Lbrace) + 1
		v.call = edit{brace, brace, fmt.Sprintf(" if mutantChosen == %q { %s };", m.place, call)}
		return v
	}
	return nil
}

// difference is from where to where a is another text than b.
func difference(a, b string) (from, to int) {
	short := min(len(a), len(b))
	for from < short && a[from] == b[from] {
		from++
	}
	same := 0
	for same < short-from && a[len(a)-1-same] == b[len(b)-1-same] {
		same++
	}
	return from, len(a) - same
}

// weave puts the variants of one file into it. Their names stand in what the
// compiler says of them.
func weave(text string, vs []*variant) string {
	var edits []edit
	tail := ""
	for _, v := range vs {
		edits = append(append(edits, v.edits...), v.call)
		tail += fmt.Sprintf("\n//line %s:1\n%s\n", v.name, v.text)
	}
	slices.SortStableFunc(edits, func(a, b edit) int { return a.from - b.from })
	var out strings.Builder
	at := 0
	for i, e := range edits {
		if i > 0 && e == edits[i-1] {
			continue // the parameter has its name already
		}
		out.WriteString(text[at:e.from] + e.text)
		at = e.to
	}
	return out.String() + text[at:] + tail
}

// built are the test binaries that are any of the mutants.
type built struct {
	root, dir string
	overlay   string
	skip      string             // tests that are not run; empty: none
	apart     map[*mutant]bool   // those that have to be built by themselves
	broken    map[*mutant]string // by what the compiler says
}

// build builds the tests of all the mutants, with all of them in the code.
// Building takes ten times as long as a test: so it is done once a package.
func build(ctx context.Context, root, dir string, all []*mutant) (*built, error) {
	b := &built{root: root, dir: dir, overlay: filepath.Join(dir, "overlay.json"), apart: make(map[*mutant]bool), broken: make(map[*mutant]string)}
	files := make(map[string][]*variant)
	var variants []*variant
	for _, m := range all {
		was, is, err := m.texts(root)
		if err != nil {
			return nil, err
		}
		v := m.variant(was, is)
		if v == nil {
			b.apart[m] = true
			continue
		}
		files[m.file] = append(files[m.file], v)
		variants = append(variants, v)
	}
	pkgs := make(map[string]bool)
	for _, m := range all {
		pkgs[m.pkg] = true
	}
	for {
		if err := b.weave(files); err != nil {
			return nil, err
		}
		out, err := b.compile(ctx, slices.Sorted(maps.Keys(pkgs)))
		if err == nil {
			return b, nil
		}
		found := false
		for _, v := range variants {
			if b.broken[v.m] == "" && strings.Contains(out, v.name+":") {
				found = true
				b.broken[v.m] = out
				files[v.m.file] = slices.DeleteFunc(files[v.m.file], func(o *variant) bool { return o == v })
			}
		}
		if !found {
			return nil, fmt.Errorf("build the tests: %w\n%s", err, out)
		}
	}
}

// weave writes the overlay.
func (b *built) weave(files map[string][]*variant) error {
	replace := make(map[string]string)
	write := func(name, text string) error {
		abs, err := filepath.Abs(filepath.Join(b.root, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		with := filepath.Join(b.dir, strings.ReplaceAll(name, "/", "_"))
		replace[abs] = with
		return os.WriteFile(with, []byte(text), 0o600)
	}
	for name, vs := range files {
		text, err := os.ReadFile(filepath.Join(b.root, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		if err := write(name, weave(string(text), vs)); err != nil {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, text, parser.PackageClauseOnly)
		if err != nil {
			return err
		}
		err = write(path.Join(path.Dir(name), "mutant_chosen.go"),
			fmt.Sprintf("package %s\n\nimport \"os\"\n\nvar mutantChosen = os.Getenv(%q)\n", f.Name.Name, chosen))
		if err != nil {
			return err
		}
	}
	spec, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return err
	}
	return os.WriteFile(b.overlay, spec, 0o600)
}

// compile builds the test binaries, and returns what the compiler said.
func (b *built) compile(ctx context.Context, pkgs []string) (string, error) {
	for _, pkg := range pkgs {
		args := slices.Concat([]string{"test", "-c", "-o", b.binary(pkg)}, cheap, []string{pkg})
		c := exec.CommandContext(ctx, "go", args...)
		c.Dir = b.root
		c.Env = append(os.Environ(), overlaid(b.overlay))
		if out, err := c.CombinedOutput(); err != nil {
			return string(out), err
		}
	}
	return "", nil
}

func (b *built) binary(pkg string) string {
	return filepath.Join(b.dir, strings.ReplaceAll(path.Clean(pkg), "/", "_")+".test")
}

// test runs tests of a package as one of the mutants, or as the code is if which
// is empty. What is built by the tests themselves is the same.
func (b *built) test(ctx context.Context, pkg, which, timeout string, args ...string) (string, error) {
	args = append([]string{"-test.paniconexit0", "-test.count=1", "-test.timeout=" + timeout, "-test.skip=" + b.skip}, args...)
	args = append(args, histories(pkg)...)
	c := exec.CommandContext(ctx, b.binary(pkg), args...)
	c.Dir = filepath.Join(b.root, filepath.FromSlash(pkg))
	c.Env = append(os.Environ(), overlaid(b.overlay), chosen+"="+which)
	out, err := c.CombinedOutput()
	return string(out), err
}
