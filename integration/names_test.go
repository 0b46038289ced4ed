package integration

import (
	"go/ast"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Comments and documents only name files and folders that exist. A file without a folder in a
// comment is one of the comment's own package.
func TestNamedFilesExist(t *testing.T) {
	var (
		file   = regexp.MustCompile(`(?:^|[^\w./*-])([a-z][\w./-]*\.go)\b`)
		folder = regexp.MustCompile(`(?:^|[^\w./-])((?:cmd|config|deploy|docs|integration|internal|tools)/[\w./-]*\w)`)
		member = regexp.MustCompile(`\.[A-Z].*`) // of a package, as in internal/xds.Key
		ends   = make(map[string]bool)           // every path, with and without its first folders
		pages  []string
	)
	err := filepath.WalkDir("..", func(name string, d fs.DirEntry, err error) error {
		switch base := filepath.Base(name); {
		case err != nil:
			return err
		case d.IsDir() && name != ".." && (base == "bin" || strings.HasPrefix(base, ".")):
			return fs.SkipDir
		case path.Ext(name) == ".md":
			pages = append(pages, name)
		}
		parts := strings.Split(filepath.ToSlash(name), "/")[1:]
		for i := range parts {
			ends[path.Join(parts[i:]...)] = true
		}
		return nil
	})
	if err != nil || len(pages) < 5 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	check := func(where, pkg, text string) {
		for _, m := range file.FindAllStringSubmatch(text, -1) {
			own := pkg != "" && m[1] != "doc.go" && !strings.Contains(m[1], "/")
			if !ends[m[1]] || own && !ends[path.Join(pkg, m[1])] {
				t.Errorf("%s names %s, which does not exist", where, m[1])
			}
		}
		for _, m := range folder.FindAllStringSubmatch(text, -1) {
			if name := member.ReplaceAllString(m[1], ""); !ends[name] {
				t.Errorf("%s names %s, which does not exist", where, name)
			}
		}
	}
	declared := make(map[string]bool)
	for _, s := range sources(t) {
		for _, group := range s.file.Comments {
			check(s.set.Position(group.Pos()).String(), s.pkg, group.Text())
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch d := n.(type) {
			case *ast.FuncDecl:
				declared[d.Name.Name] = true
			case *ast.ValueSpec:
				declared[d.Names[0].Name] = true
			}
			return true
		})
	}
	slices.Sort(pages)
	for _, name := range pages {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		check(name, "", string(text))
		if filepath.Base(name) == "SECURITY.md" {
			for _, m := range regexp.MustCompile("`([A-Za-z][a-z]+[A-Z]\\w*)`").FindAllStringSubmatch(string(text), -1) {
				if !declared[m[1]] {
					t.Errorf("%s names %s, which does not exist", name, m[1])
				}
			}
		}
	}
}
