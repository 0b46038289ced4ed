package redact

import (
	"regexp"
	"strings"
)

// Text returns s without credentials that it recognises by their form: PEM blocks, basic and bearer
// credentials, JSON web tokens, userinfo in URLs, the query parameters of URLs that have the name of a
// secret, and the content of inline_string and inline_bytes. If the end of one is missing, it hides the
// rest of s. Text knows no other words.
func Text(s string) string {
	for _, f := range forms {
		if f.may(s) {
			s = f.re.ReplaceAllString(s, f.replacement)
		}
	}
	return inline(parameters(s))
}

// parameter matches a query parameter of a URL. JSON may have the & as \u0026.
var parameter = regexp.MustCompile(`(?:[?&]|\\u0026)([\w.%~-]+)=[^\s&#"'\\]+`)

var hasParameter = having("?", "&", `\u0026`)

// parameters hides the query parameters of URLs that have the name of a secret.
func parameters(s string) string {
	if !hasParameter(s) {
		return s
	}
	return parameter.ReplaceAllStringFunc(s, func(p string) string {
		if !Suspicious(parameter.FindStringSubmatch(p)[1]) {
			return p
		}
		return p[:strings.IndexByte(p, '=')+1] + Hidden
	})
}

// forms are the forms of credentials. may is a cheap check: without may(s) the form does not occur
// in s.
var forms = []struct {
	may         func(string) bool
	re          *regexp.Regexp
	replacement string
}{
	// To the end of the block or of the text. Line ends may be escaped.
	{having("-----BEGIN "), regexp.MustCompile(`(?s)-----BEGIN .*?(?:-----END [^-]{0,64}-----|$)`), "[redacted PEM]"},
	{having("earer", "EARER"), regexp.MustCompile(`(?i)\b(bearer(?:\s+|%20))[A-Za-z0-9._~+/=-]{8,}`), "${1}" + Hidden},
	// In base64, which no word of small letters is.
	{having("asic", "ASIC"), regexp.MustCompile(`((?i:\bbasic)(?:\s+|%20))[A-Za-z0-9+/_]{1,2}[a-z]*[A-Z0-9+/=_][A-Za-z0-9+/=_]*`), "${1}" + Hidden},
	{having("eyJ"), regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){0,4}`), "[redacted JWT]"},
	{having("://"), regexp.MustCompile(`(://)[^/\s]+@`), "${1}" + Hidden + "@"},
}

func having(words ...string) func(string) bool {
	return func(s string) bool {
		for _, w := range words {
			if strings.Contains(s, w) {
				return true
			}
		}
		return false
	}
}

// inlineName matches the name of a DataSource's content in JSON or a text proto, which may be
// quoted inside another string. protobuf writes hard spaces into its errors.
var inlineName = regexp.MustCompile(`inline_?(?:[sS]tring|[bB]ytes)[\\"']*[\s\x{a0}]*:[\s\x{a0}]*`)

// inline hides the content of inline_string and inline_bytes. Envoy's errors quote the whole
// refused resource.
func inline(s string) string {
	if !strings.Contains(s, "inline") {
		return s
	}
	var out strings.Builder
	for {
		at := inlineName.FindStringIndex(s)
		if at == nil {
			out.WriteString(s)
			return out.String()
		}
		out.WriteString(s[:at[1]])
		out.WriteString(Hidden)
		s = s[at[1]:]
		s = s[quoted(s):]
	}
}

// quoted returns the length of the string literal that s begins with: to its closing quote, or to
// the end of the line if it has no quotes. It is all of s if the end is missing.
func quoted(s string) int {
	slashes := len(s) - len(strings.TrimLeft(s, `\`))
	if slashes == len(s) {
		return len(s)
	}
	quote := s[slashes]
	if quote != '"' && quote != '\'' {
		if n := strings.IndexByte(s, '\n'); n >= 0 {
			return n
		}
		return len(s)
	}
	before := 0
	for i := slashes + 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			before++
			continue
		case quote:
			// The closing quote has as many backslashes as the opening one. Quotes inside
			// have more.
			if before <= slashes {
				return i + 1
			}
		}
		before = 0
	}
	return len(s)
}
