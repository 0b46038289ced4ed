package redact

import "strings"

// Hidden replaces a secret.
const Hidden = "[redacted]"

// words mark a name as that of a secret, if the name contains one of them without separators.
var words = []string{
	"password", "passwd", "passphrase", "secret", "token", "credential", "authorization", "apikey", "accesskey", "privatekey", "cookie",
}

// places are endings of names whose value is only a secret's place, name or kind.
var places = []string{"name", "names", "file", "filename", "path", "endpoint", "url", "uri", "type", "header", "config", "source", "prefix"}

var separators = strings.NewReplacer("-", "", "_", "", ".", "")

// Suspicious reports whether a field, a header or an entry of a map with this name holds a
// secret: client_secret, apiKey, proxy-authorization; not tls_secret_name or token_endpoint.
func Suspicious(name string) bool {
	s := strings.ToLower(separators.Replace(name))
	for _, p := range places {
		if strings.HasSuffix(s, p) {
			return false
		}
	}
	for _, w := range words {
		if strings.Contains(s, w) {
			return true
		}
	}
	return false
}

// contents are the names of a pair's content fields, without separators.
var contents = map[string]bool{
	"value": true, "rawvalue": true, "stringvalue": true, "numbervalue": true, "structvalue": true, "listvalue": true,
	"exact": true, "exactmatch": true, "prefix": true, "prefixmatch": true, "suffix": true, "suffixmatch": true, "contains": true, "regex": true,
}

func isContent(name string) bool { return contents[strings.ToLower(separators.Replace(name))] }
