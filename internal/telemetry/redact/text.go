package redact

import (
	"cmp"
	"iter"
	"regexp"
	"slices"
	"strings"
)

// Text returns s without what looks like a secret. What is cut off in its midst
// is hidden to the end.
func Text(s string) string {
	if !worth(s) {
		return s
	}
	return known.text(s)
}

// redacted is Text, made anew.
func redacted(s string) string {
	var all []span
	for _, r := range looks {
		if !r.may(s) {
			continue
		}
		for _, m := range r.re.FindAllStringSubmatchIndex(s, -1) {
			if at := m[2*r.group : 2*r.group+2]; !r.mixed || mixed(s[at[0]:at[1]]) {
				all = append(all, span{at[0], at[1], r.by})
			}
		}
	}
	all = append(all, encoded(s)...)
	return hide(s, append(all, assignments(s)...))
}

// longRun is how many characters of base64 in a row are no name any more.
const longRun = 256

// encoded are long runs of base64. Counted by hand: a regular expression of so
// many repetitions would take a thousand times as long.
func encoded(s string) (all []span) {
	from := 0
	for i := 0; i <= len(s); i++ {
		if i < len(s) {
			switch c := s[i]; {
			case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '+', c == '/', c == '-', c == '_', c == '=':
				continue
			}
		}
		if i-from >= longRun && mixed(s[from:i]) {
			all = append(all, span{from, i, "[redacted base64]"})
		}
		from = i + 1
	}
	return all
}

// span is what is hidden of a text, and what stands there instead.
type span struct {
	from, to int
	by       string
}

// hide puts something else in the place of all spans. Each was found in the whole
// text, so that none is missed because another was, and where they overlap, they
// are one.
func hide(s string, all []span) string {
	if len(all) == 0 {
		return s
	}
	slices.SortFunc(all, func(a, b span) int { return cmp.Or(a.from-b.from, b.to-a.to) })
	var out strings.Builder
	at := 0
	for _, sp := range all {
		if sp.to <= at {
			continue
		}
		if sp.from >= at {
			out.WriteString(s[at:sp.from])
			out.WriteString(sp.by)
		}
		at = sp.to
	}
	out.WriteString(s[at:])
	return out.String()
}

// looks are for what is known by its own look.
var looks = []struct {
	may   func(string) bool // without which re finds nothing; it is much cheaper
	re    *regexp.Regexp
	group int // that is hidden
	by    string
	mixed bool // not if it may be a word
}{
	// To its end, or that of the text. Line ends may be escaped.
	{having("-----BEGIN "), regexp.MustCompile(`(?s)-----BEGIN .*?(?:-----END [^-]{0,64}-----|$)`), 0, "[redacted PEM]", false},
	{saying("bearer"), regexp.MustCompile(`(?i)\bbearer(?:\s+|%20)([A-Za-z0-9._~+/=-]{8,})`), 1, Hidden, false},
	{saying("basic", "negotiate"), regexp.MustCompile(`(?i)\b(?:basic|negotiate)(?:\s+|%20)([A-Za-z0-9+/=]{8,})`), 1, Hidden, true},
	{having("eyJ"), regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){0,4}`), 0, "[redacted JWT]", true},
	{having("://"), regexp.MustCompile(`://[^/\s:@]*:([^/\s]+)@`), 1, Hidden, false},
	// A token that stands as the user.
	{having("://"), regexp.MustCompile(`://([A-Za-z0-9._~%+=-]{16,})@`), 1, Hidden, true},
	{having("@"), regexp.MustCompile(`(?i)\bhost_?(?:redirect|rewrite(?:_?literal)?)` + of + userinfo), 1, Hidden, false},
	{having("@"), regexp.MustCompile(`(?i)\b(?:host|authority)` + of + userinfo), 1, Hidden, false},
	{having("--"), regexp.MustCompile(`(?i)--[a-z0-9_-]{0,64}(?:password|passwd|passphrase|secret|token|credential|api-?key|access-?key|private-?key)[ \t]+("[^"]*"?|'[^']*'?|[^\s"'-][^\s"']*)`), 1, Hidden, false},
}

// of is what stands between a name and its value, in quotes or not, and userinfo a
// password before a host: none of its parts holds what would end the value.
const (
	of       = `\\*["']?\s*[:=]\s*\\*["']?`
	userinfo = `[^/\s:@"'\\,;{}]*:([^\s"'\\,;{}]+)@`
)

var credentials = regexp.MustCompile(`^[^/\s:@]*:(.+)@`)

// host returns the value of what holds a host without a password.
func host(s string) string {
	m := credentials.FindStringSubmatchIndex(s)
	if m == nil {
		return s
	}
	return s[:m[2]] + Hidden + s[m[3]:]
}

func having(what string) func(string) bool {
	return func(s string) bool { return strings.Contains(s, what) }
}

// saying is having, of words in small or large letters.
func saying(words ...string) func(string) bool {
	return func(s string) bool {
		for i := 0; i < len(s); i++ {
			for _, w := range words {
				if s[i]|0x20 == w[0] && len(s)-i >= len(w) && strings.EqualFold(s[i:i+len(w)], w) {
					return true
				}
			}
		}
		return false
	}
}

// mixed reports whether s has small and large letters or digits, as what is
// encoded has and most names have not.
func mixed(s string) bool {
	var small, other bool
	for i := range len(s) {
		small = small || 'a' <= s[i] && s[i] <= 'z'
		other = other || 'A' <= s[i] && s[i] <= 'Z' || '0' <= s[i] && s[i] <= '9'
	}
	return small && other
}

// worth reports whether there may be something in s. Most text has nothing.
func worth(s string) bool {
	if strings.ContainsAny(s, ":=") || strings.Contains(s, "--") || len(s) >= 256 {
		return true
	}
	l := strings.ToLower(s)
	for _, w := range []string{"-----begin", "bearer", "basic", "negotiate", "eyj"} {
		if strings.Contains(l, w) {
			return true
		}
	}
	return false
}

// assignment is where a name begins and ends, and where its value begins.
type assignment struct{ name, end, value int }

// assigned yields each name with what separates it from its value, of JSON, also
// quoted in another string, of a text proto, of key=value. By hand: a regular expression takes ten times as
// long, and this is most of the work.
func assigned(s string) iter.Seq[assignment] {
	return func(yield func(assignment) bool) {
		for at := 0; at < len(s); at++ {
			if s[at] != ':' && s[at] != '=' {
				continue
			}
			end := at
			for end > 0 && (space(s[end-1]) || strings.HasSuffix(s[:end], hardSpace)) {
				if end--; s[end] == hardSpace[1] {
					end--
				}
			}
			for n := 0; n < 2 && end > 0 && (s[end-1] == '"' || s[end-1] == '\'' || s[end-1] == ']'); n++ {
				end--
			}
			for end > 0 && s[end-1] == '\\' {
				end--
			}
			name := end
			for name > 0 && nameByte(s[name-1]) {
				name--
			}
			for name < end && !letter(s[name]) {
				name++
			}
			if name == end {
				continue
			}
			value := at + 1
			if s[at] == '=' && value < len(s) && s[value] == '>' {
				value++
			}
			for value < len(s) && space(s[value]) {
				value++
			}
			if !yield(assignment{name, end, value}) {
				return
			}
		}
	}
}

// hardSpace is one that protobuf writes into its errors.
const hardSpace = "\u00a0"

func space(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }

func letter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

func nameByte(c byte) bool {
	return letter(c) || '0' <= c && c <= '9' || c == '_' || c == '.' || c == '-'
}

// inline reports whether a name holds a DataSource's content.
func inline(name string) bool {
	l := strings.ToLower(strings.ReplaceAll(name, "_", ""))
	return strings.HasSuffix(l, "inlinestring") || strings.HasSuffix(l, "inlinebytes")
}

// contents are the names of what a pair holds beside its name, without what
// separates words.
var contents = map[string]bool{
	"value": true, "rawvalue": true, "stringvalue": true, "numbervalue": true, "structvalue": true, "listvalue": true,
	"exact": true, "exactmatch": true, "prefix": true, "prefixmatch": true, "suffix": true, "suffixmatch": true, "contains": true, "regex": true,
}

func isContent(name string) bool {
	return contents[strings.ToLower(strings.ReplaceAll(name, "_", ""))]
}

// maxValue is how far the end of a value is looked for, in bytes: all text behind
// one that is longer is hidden. It keeps text of nothing but beginnings from
// taking the square of its length. maxName is that for a name.
const (
	maxValue = 8 << 10
	maxName  = 256
)

// assignments are the values of suspicious names, and of what is said, in a pair
// of key and value, to have such a name.
func assignments(s string) (all []span) {
	pair := false
	var before span // the value of a pair whose name may follow
	for a := range assigned(s) {
		from, end, value := a.name, a.end, a.value
		name, rest := s[from:end], s[value:]
		if name == "key" || name == "name" {
			near := rest[:min(len(rest), maxName)]
			pair = Suspicious(strings.Trim(near[:extent(near)], `\"'`))
			if pair && before.to > 0 && from-before.to < maxName && !strings.ContainsAny(s[before.to:from], "{}") {
				all = append(all, before)
			}
			continue
		}
		content := isContent(name)
		if content && !pair {
			near := rest[:min(len(rest), maxValue)]
			n := extent(near)
			before = span{value, value + n, quoted(rest[:n])}
		}
		if !inline(name) && !Suspicious(name) && !(pair && content) {
			continue
		}
		if from > 0 && s[from-1] == '/' && s[end] == ':' && !inline(name) && !strings.HasPrefix(rest, "\"") {
			continue // a file of that name, and what is wrong with it
		}
		near := rest[:min(len(rest), maxValue)]
		n := extent(near)
		if lists(name) && !strings.ContainsAny(near[:min(1, len(near))], "\\\"'{[<") {
			n = line(near)
		}
		if s[value-1] == '=' && !inline(name) && !(pair && content) {
			n = word(near, n, name)
		}
		if n == len(near) { // it has no end, or none that is near
			return append(all, span{value, len(s), quoted(near)})
		}
		if n > 0 {
			all = append(all, span{value, value + n, quoted(rest[:n])})
		}
	}
	return all
}

// quoted is Hidden in the quotes that the value had.
func quoted(v string) string {
	open := v[:len(v)-len(strings.TrimLeft(v, `\`))]
	if q := v[len(open):]; q != "" && (q[0] == '"' || q[0] == '\'') {
		return open + q[:1] + Hidden + open + q[:1]
	}
	return Hidden
}

// extent is how long the value is that s begins with: a string to its closing
// quote, a message or list to its closing bracket, a word to what ends it. It is
// all of s where the end is missing.
func extent(s string) int {
	slashes := len(s) - len(strings.TrimLeft(s, `\`))
	if slashes == len(s) {
		return len(s)
	}
	switch c := s[slashes]; c {
	case '"', '\'':
		for i := slashes + 1; i < len(s); i++ {
			if s[i] != c {
				continue
			}
			before := 0
			for before < i-slashes-1 && s[i-1-before] == '\\' {
				before++
			}
			// A quote of this depth has as many slashes as the opening one;
			// deeper ones, which are inside, have more.
			if before <= slashes {
				return i + 1
			}
		}
		return len(s)
	case '{', '[', '<':
		return enclosed(s)
	}
	// To the end of the line, or of what it stands in: a header's value has words.
	for i := 0; i < len(s); i++ {
		n := strings.IndexAny(s[i:], "\n\r\t\"'`,;&{}[]<>()")
		if n < 0 {
			break
		}
		if i += n; !strings.Contains(",;&", s[i:i+1]) || separates(s[i+1:]) {
			return i
		}
	}
	return len(s)
}

// separates reports whether what stands behind a comma, say, is something else, and
// not the rest of a password that has one: nothing, a blank, or another name with
// its value.
func separates(s string) bool {
	n := 0
	for n < len(s) && n < maxName && nameByte(s[n]) {
		n++
	}
	if n == 0 {
		return s == "" || space(s[0]) || strings.IndexByte("\"'`{}[]<>()", s[0]) >= 0
	}
	return n < len(s) && (s[n] == '=' || s[n] == ':')
}

// word is how long the value is, of those n bytes, that stands behind name= without
// a blank, in the midst of words that are not a part of it. It is all of them in
// quotes, be they around the name as well, and where it is of several words.
func word(s string, n int, name string) int {
	if n == 0 || strings.IndexByte("\\\"'`{[<", s[0]) >= 0 || lists(name) || strings.Contains(strings.ToLower(name), "phrase") {
		return n
	}
	if n < len(s) && strings.IndexByte("\"'`", s[n]) >= 0 {
		return n
	}
	i := strings.IndexAny(s[:n], " \t\v\f"+hardSpace)
	if i < 0 || schemes[strings.ToLower(s[:i])] {
		return n
	}
	return i
}

// schemes are what a credential may begin with; it follows.
var schemes = map[string]bool{
	"bearer": true, "basic": true, "digest": true, "negotiate": true, "ntlm": true, "token": true, "apikey": true, "hmac": true, "aws4-hmac-sha256": true,
}

// lists reports whether what goes by this name has pairs or parts of its own, of
// which each may be the secret: the header is the whole line.
func lists(name string) bool {
	l := strings.ToLower(name)
	return strings.Contains(l, "cookie") || strings.HasSuffix(l, "authorization")
}

// line is how long a value is that ends with its line: a header has quotes of its own.
func line(s string) int {
	if i := strings.IndexAny(s, "\n\r"); i >= 0 {
		return i
	}
	return len(s)
}

// enclosed is how long a message or list is: to the bracket that closes its first
// one. Brackets in strings count as well, so that it may be too long.
func enclosed(s string) int {
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case '{', '[', '<':
			depth++
		case '}', ']', '>':
			if depth--; depth <= 0 {
				return i + 1
			}
		}
	}
	return len(s)
}
