package config

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"slices"
	"sort"
	"strconv"

	"go.yaml.in/yaml/v3"
)

var yamlError = regexp.MustCompile(`(?s)^yaml: (?:line (\d+): )?(.*)`)

// maxSought bounds the size of a text, in bytes, in which Syntax searches for the line. It decodes
// the text several times.
const maxSought = 1 << 20

// Syntax explains an error of the YAML decoder, and returns the line of the fault. The decoder
// names that line, the one before, the first line of the present value, or none. But its error does
// not depend on the text after the fault. So the fault's line is the first one at which the text,
// cut there, has the same error.
func Syntax(src []byte, err error) (line int, reason string) {
	m := yamlError.FindStringSubmatch(err.Error())
	if m == nil {
		return 1, err.Error()
	}
	line, _ = strconv.Atoi(m[1])
	if len(src) > maxSought {
		return max(line, 1), m[2]
	}
	line, reason = lineOf(src, err), m[2]
	if at, quote := unclosed(src, line); at > 0 && repairs(src, at, quote, line) {
		return at, "a quote is not closed (" + reason + ")"
	}
	return line, plainly(reason, src, line)
}

// repairs reports whether adding a quote at the end of line at removes or moves the fault.
func repairs(src []byte, at int, quote byte, fault int) bool {
	rows := bytes.SplitAfterN(src, []byte("\n"), at+1)
	row := bytes.TrimRight(rows[at-1], "\r\n")
	rows[at-1] = slices.Concat(row, []byte{quote}, rows[at-1][len(row):])
	closed := bytes.Join(rows, nil)
	err := documents(closed)
	return err == nil || lineOf(closed, err) != fault
}

// lineOf returns the first line at which the text, cut there, has the same error.
func lineOf(src []byte, err error) int {
	var ends []int
	for i, b := range src {
		if b == '\n' || i == len(src)-1 {
			ends = append(ends, i+1)
		}
	}
	if len(ends) == 0 {
		return 1
	}
	return 1 + sort.Search(len(ends)-1, func(i int) bool {
		e := documents(src[:ends[i]])
		return e != nil && e.Error() == err.Error()
	})
}

// unclosed returns the line of a quote that was opened before the fault and closed, if at all, by
// the opening quote of another value. 0: there is none. It does not parse YAML, so it may be wrong;
// Syntax checks it with repairs.
func unclosed(src []byte, fault int) (at int, quote byte) {
	line, begins, begun := 1, true, 0 // begins: a value may begin here
	for i := 0; i < len(src) && line <= fault; i++ {
		c := src[i]
		if c == '\n' {
			line++
		}
		switch {
		case i+1 < len(src) && (quote == '"' && c == '\\' && src[i+1] != '\n' || quote == '\'' && c == quote && src[i+1] == quote):
			i++
		case quote != 0 && c == quote:
			quote, begins = 0, false
			rest, _, _ := bytes.Cut(src[i+1:], []byte("\n"))
			rest = bytes.TrimLeft(rest, " \t\r")
			if begun < line && len(rest) > 0 && !bytes.ContainsRune([]byte(":,]}#"), rune(rest[0])) {
				return begun, c
			}
		case quote != 0:
		case c == '#' && (i == 0 || src[i-1] == ' ' || src[i-1] == '\t' || src[i-1] == '\n'):
			for i+1 < len(src) && src[i+1] != '\n' {
				i++
			}
		case begins && (c == '"' || c == '\''):
			quote, begun = c, line
		case c == ' ', c == '\t', c == '\r':
		default:
			begins = c == '\n' || c == ':' || c == ',' || c == '[' || c == '{' || c == '-' && i+1 < len(src) && src[i+1] == ' '
		}
	}
	if quote != 0 && begun < fault {
		return begun, quote
	}
	return 0, 0
}

const flowList = "a [ is not closed, a comma is missing, or an expression with one of , : ? [ ] { } needs quotes around it"

// meant has the most common causes of the decoder's errors.
var meant = map[string]string{
	"did not find expected ',' or ']'":               flowList,
	"did not find expected ',' or '}'":               "a { is not closed, or a comma is missing",
	"mapping values are not allowed in this context": "a colon too many: put a value with a colon in quotes, and close each quote above it",
	"did not find expected node content":             "a value is missing, or a [ or { is not closed",
	"found unexpected end of stream":                 "a quote is not closed",
}

// quotedStart matches a value that begins with a quoted part, and goes on after it: "edge" + node.id.
var quotedStart = regexp.MustCompile(`(?:- |: |[\[{,])\s*(?:"[^"]*"|'[^']*')[ \t]*[^ \t\r:,\]}#]`)

// plainly adds the most common cause to the decoder's error.
func plainly(reason string, src []byte, line int) string {
	help := meant[reason]
	if rows := bytes.Split(src, []byte("\n")); line <= len(rows) {
		row := rows[line-1]
		switch {
		case bytes.ContainsRune(row[:len(row)-len(bytes.TrimLeft(row, " \t"))], '\t'):
			help = "a tab: indent with spaces"
		case help != flowList && quotedStart.Match(row):
			help = "text after a closing quote: put the whole value in quotes of the other kind"
		}
	}
	if help == "" {
		return reason
	}
	return help + " (" + reason + ")"
}

// documents decodes a text to its end or its first error.
func documents(src []byte) error {
	for d := yaml.NewDecoder(bytes.NewReader(src)); ; {
		switch err := d.Decode(new(yaml.Node)); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}
