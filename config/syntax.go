package config

import (
	"bytes"
	"errors"
	"io"
	"regexp"
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
	line = lineOf(src, err)
	return line, plainly(m[2], src, line)
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

const flowList = "a [ or a quote above is not closed, a comma is missing, or an expression with one of , : ? [ ] { } needs quotes around it"

// meant has the most common causes of the decoder's errors.
var meant = map[string]string{
	"did not find expected ',' or ']'":               flowList,
	"did not find expected ',' or '}'":               "a { or a quote above is not closed, or a comma is missing",
	"mapping values are not allowed in this context": "a colon too many: put a value with a colon in quotes, and close each quote above it",
	"did not find expected node content":             "a value is missing, or a [ or { is not closed",
	"did not find expected key":                      "wrong indentation, or a quote above is not closed",
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
