package upstream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"xdsrelay/internal/xds"
)

// protoPlace is where protojson and prototext say the place.
var protoPlace = regexp.MustCompile(` ?\(line (\d+):(\d+)\)(: )?`)

// place takes the line out of a decoder's message. Of what was decoded from JSON
// doc is the text, and d its lines in the file if those are others: then the
// field is named where the decoder did not.
func place(err error, doc []byte, d *document) error {
	if err == nil {
		return nil
	}
	text := xds.Plain(err).Error()
	m := protoPlace.FindStringSubmatchIndex(text)
	if m == nil {
		return at(0, "%s", text)
	}
	line, _ := strconv.Atoi(text[m[2]:m[3]])
	column, _ := strconv.Atoi(text[m[4]:m[5]])
	before, after := text[:m[0]], text[m[1]:]
	if before != "" && after != "" {
		before += ": "
	}
	text = before + after
	if doc != nil {
		text = ofField(text, doc, offset(doc, line, column))
	}
	if d != nil {
		line = d.line(line)
	}
	return at(line, "%s", text)
}

// ofField names the field that stands at an offset of a document, unless the
// message does. Where the document is JSON, what protojson takes for wrong syntax
// is a value of another kind than the field's.
func ofField(text string, doc []byte, offset int) string {
	token, kind := strings.CutPrefix(text, "syntax error: unexpected token ")
	switch {
	case kind && !json.Valid(doc):
		return text
	case kind:
		text = "does not take " + token
		if _, err := strconv.ParseFloat(token, 64); err == nil {
			text += ` (a duration is written as in "5s")`
		}
	case strings.Contains(text, "field"):
		return text
	}
	if path := pathAt(doc, offset); path != "" {
		return path + ": " + text
	}
	return "the file: " + text
}

// offset of a line and column, both from 1, columns in characters.
func offset(doc []byte, line, column int) int {
	at := 0
	for ; line > 1; line-- {
		i := bytes.IndexByte(doc[at:], '\n')
		if i < 0 {
			break
		}
		at += i + 1
	}
	for ; column > 1 && at < len(doc); column-- {
		_, n := utf8.DecodeRune(doc[at:])
		at += n
	}
	return at
}

// pathAt is the field to which what stands at an offset of a JSON document
// belongs, as in resources[0].name; empty for the document as such.
func pathAt(doc []byte, offset int) string {
	type level struct {
		list  bool
		begun bool   // a key of it was read
		at    string // key or index
		n     int
	}
	var stack []level
	path := func() string {
		out := ""
		for _, l := range stack {
			if l.at != "" && !l.list && out != "" {
				out += "."
			}
			out += l.at
		}
		return out
	}
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber()
	for {
		tok, err := dec.Token()
		if err != nil {
			return path()
		}
		reached := int(dec.InputOffset()) > offset
		delim, _ := tok.(json.Delim)
		if delim == '}' || delim == ']' {
			stack = stack[:len(stack)-1]
			if reached {
				return path()
			}
			continue
		}
		if len(stack) > 0 {
			switch top := &stack[len(stack)-1]; {
			case top.list:
				top.at = fmt.Sprintf("[%d]", top.n)
				top.n++
			case !top.begun:
				top.begun, top.at = true, fmt.Sprint(tok)
				if reached {
					return path()
				}
				continue
			default:
				top.begun = false
			}
		}
		if reached {
			return path()
		}
		if delim != 0 {
			stack = append(stack, level{list: delim == '['})
		}
	}
}
