package relay

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// The tables of docs/configuration.md have the keys, defaults and comments of config/relay.yaml.
// `make docs` sets WRITE_DOCS, with which the test writes the tables.
func TestConfigurationReference(t *testing.T) {
	const file, reference = "../../config/relay.yaml", "../../docs/configuration.md"
	src, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var root yaml.Node
	if err := yaml.Unmarshal(src, &root); err != nil {
		t.Fatal(err)
	}
	rows := referenceRows(t, "", root.Content[0])
	doc, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	// A key belongs to the table with the longest prefix of its name.
	table := regexp.MustCompile(`(?s)(<!-- keys: ([a-z._]+) -->\n).*?(<!-- end -->)`)
	var prefixes []string
	for _, m := range table.FindAllSubmatch(doc, -1) {
		prefixes = append(prefixes, string(m[2]))
	}
	slices.SortFunc(prefixes, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	byPrefix := map[string]string{}
	for _, r := range rows {
		i := slices.IndexFunc(prefixes, func(p string) bool {
			return r.key == p || strings.HasPrefix(r.key, p+".") || strings.HasPrefix(r.key, p+"[")
		})
		if i < 0 {
			t.Errorf("%s has no table for %s", reference, r.key)
			continue
		}
		byPrefix[prefixes[i]] += r.text
	}
	want := table.ReplaceAllFunc(doc, func(old []byte) []byte {
		m := table.FindSubmatch(old)
		return fmt.Appendf(nil, "%s\n| key | default | reload | description |\n|---|---|---|---|\n%s\n%s", m[1], byPrefix[string(m[2])], m[3])
	})
	switch {
	case string(want) == string(doc):
	case os.Getenv("WRITE_DOCS") == "":
		t.Errorf("the tables of %s differ from %s: run make docs", reference, file)
	default:
		if err := os.WriteFile(reference, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// referenceRow is a line of a table.
type referenceRow struct{ key, text string }

// referenceRows returns the rows of the keys in a mapping, or in the first mapping of a list.
func referenceRows(t *testing.T, prefix string, n *yaml.Node) (out []referenceRow) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, v := n.Content[i], n.Content[i+1]
		key := prefix + name.Value
		if v.Kind == yaml.MappingNode {
			out = append(out, referenceRows(t, key+".", v)...)
			continue
		}
		if name.HeadComment == "" {
			t.Errorf("relay.yaml:%d: %s has no comment", name.Line, key)
		}
		value := fmt.Sprintf("`%s`", v.Value)
		switch {
		case v.Kind == yaml.SequenceNode && len(v.Content) > 0:
			value = cmp.Or(map[string]string{"upstream.origins": "required", "aggregation.rules": "`[{key: node.cluster}]`"}[key], "list")
		case v.Kind == yaml.SequenceNode:
			value = "`[]`"
		case key == "upstream.origins[].address", key == "aggregation.rules[].key": // relay.yaml has examples
			value = "required"
		case v.Value == "":
			value = "`\"\"`"
		}
		reload := "no"
		switch {
		case reloadable.MatchString(key):
			reload = "yes"
		case admissionKey.MatchString(key), admissionKey.MatchString(key + "[0].identity"):
			reload = "[partly](#reload)"
		}
		text := strings.ReplaceAll(strings.TrimPrefix(name.HeadComment, "# "), "\n# ", " ")
		out = append(out, referenceRow{key, fmt.Sprintf("| `%s` | %s | %s | %s |\n", key, value, reload, strings.ReplaceAll(text, "|", `\|`))})
		if v.Kind == yaml.SequenceNode && len(v.Content) > 0 {
			item := v.Content[0]
			item.Content[0].HeadComment = cmp.Or(item.Content[0].HeadComment, item.HeadComment)
			out = append(out, referenceRows(t, key+"[].", item)...)
		}
	}
	return out
}
