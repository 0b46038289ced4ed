package redact

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Quoting is Text for a message that may quote resources: it also hides what Any hides in them. If
// all is false, it may quote others too. Then each string literal in double quotes is hidden, as it
// is if a resource has an unknown type. The work is linear in the message and the resources.
func Quoting(s string, resources []*anypb.Any, all bool) string {
	h := hider{hidden: make(map[string]bool)}
	for _, a := range resources {
		h.message(proto.CloneOf(a).ProtoReflect(), false, 0)
	}
	if len(h.hidden) > 0 {
		s = strings.NewReplacer(h.forms(len(s))...).Replace(s)
	}
	return Text(literals(s, !all || h.removed))
}

// short is the length in bytes below which a value is hidden only in quotes: it may be part of a
// word.
const short = 4

// forms returns the forms in which a message of n bytes may quote the values, the longest first,
// each with its replacement.
func (h *hider) forms(n int) (out []string) {
	forms := make(map[string]bool)
	for v := range h.hidden {
		if len(v) > n {
			continue
		}
		for _, f := range []string{v, inJSON(v), inTextProto(v)} {
			if len(f) < short {
				forms[`"`+f+`"`], forms["'"+f+"'"] = true, true
			} else {
				forms[f] = true
			}
		}
	}
	var list []string
	for f := range forms {
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b string) int { return len(b) - len(a) })
	for _, f := range list {
		by := Hidden
		if len(f) < short+2 && (f[0] == '"' || f[0] == '\'') && f[0] == f[len(f)-1] {
			by = f[:1] + Hidden + f[:1]
		}
		out = append(out, f, by)
	}
	return out
}

func inJSON(s string) string {
	b, _ := json.Marshal(s) // a string
	return string(b[1 : len(b)-1])
}

// inTextProto returns s as protobuf for C++ prints it.
func inTextProto(s string) string {
	var out strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case c == '\n':
			out.WriteString(`\n`)
		case c == '\r':
			out.WriteString(`\r`)
		case c == '\t':
			out.WriteString(`\t`)
		case c == '"' || c == '\'' || c == '\\':
			out.WriteByte('\\')
			out.WriteByte(c)
		case c < ' ' || c >= 0x7f:
			fmt.Fprintf(&out, `\%03o`, c)
		default:
			out.WriteByte(c)
		}
	}
	return out.String()
}

// literals hides the string literals in double quotes: all, or only the one whose end is missing. A
// client that shortens a message may cut a value.
func literals(s string, all bool) string {
	var out strings.Builder
	for {
		at := strings.IndexByte(s, '"')
		if at < 0 {
			out.WriteString(s)
			return out.String()
		}
		escaped := len(s[:at]) - len(strings.TrimRight(s[:at], `\`))
		n := quoted(s[at-escaped:]) - escaped
		literal := s[at : at+n]
		out.WriteString(s[:at])
		switch closed := n > 1 && literal[n-1] == '"'; {
		case !closed:
			out.WriteString(`"` + Hidden)
		case all && literal != `"`+Hidden+`"` && strings.Trim(literal, `"\`) != "":
			out.WriteString(`"` + Hidden + literal[len(strings.TrimRight(literal[:n-1], `\`)):])
		default:
			out.WriteString(literal)
		}
		s = s[at+n:]
	}
}

// parsedValue matches what a parser of JSON, YAML or a text proto says of a value. After other words than
// those with the field, a single bracket or separator is no value.
var parsedValue = regexp.MustCompile(`(?s)\b(?:(invalid value for \S+ (?:type|key|field [^\s:]+))[:\s]\s*\S.*|` +
	`(unexpected token|[Uu]nsupported map key|invalid map key|unknown anchor|cannot (?:un)?marshal|cannot decode|` +
	`invalid google\.protobuf\.[\w.]+(?: field)? value|invalid [\w-]+)[:\s]\s*(?:[^\s{}\[\],:;]|[{}\[\],:;].).*)`)

// Parsing returns the error of a parser of text without the values in it. It keeps the place and the
// field.
func Parsing(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(Text(parsedValue.ReplaceAllString(err.Error(), "$1$2 "+Hidden)))
}
