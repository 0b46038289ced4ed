package redact

import "strings"

// Hidden replaces a secret.
const Hidden = "[redacted]"

// words mark a name as that of a secret, if the name contains one of them without separators.
var words = []string{
	"password", "passwd", "passphrase", "pwd", "secret", "token", "credential", "authorization", "cookie", "connectionstring",
	"apikey", "accesskey", "privatekey", "signingkey", "encryptionkey", "hmackey", "subscriptionkey", "jsonkey", "sharedkey", "authkey", "accountkey",
}

// lastWords mark a name as that of a secret, if it ends with one of them behind a separator, or is
// one: other words contain them.
var lastWords = map[string]bool{"pass": true, "psk": true, "sig": true, "signature": true}

// places are endings of names whose value is only a secret's place, name or kind.
var places = []string{"name", "names", "file", "filename", "path", "endpoint", "url", "uri", "type", "header", "config", "source", "prefix"}

var separators = strings.NewReplacer("-", "", "_", "", ".", "")

// Suspicious reports whether a field, a header or an entry of a map with this name holds a
// secret: client_secret, apiKey, proxy-authorization, DB_PASS; not tls_secret_name, token_endpoint or
// bypass.
func Suspicious(name string) bool {
	if lastWords[strings.ToLower(name[strings.LastIndexAny(name, "-_.")+1:])] {
		return true
	}
	s := strings.ToLower(separators.Replace(name))
	// The extension envoy.filters.http.basic_auth is no secret.
	if strings.HasSuffix(s, "authorizationheader") || strings.HasSuffix(s, "basicauth") && !strings.HasPrefix(s, "envoy") {
		return true
	}
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

// pairs reports whether an object is a pair of a secret's name and content, such as a header. get
// returns the text of an entry.
func pairs(get func(string) string) bool {
	for _, name := range pairNames {
		if Suspicious(get(string(name))) {
			return true
		}
	}
	return Suspicious(get("headerName")) || Suspicious(get("objectKey"))
}

// contents are the names of a pair's content fields, without separators.
var contents = map[string]bool{
	"value": true, "rawvalue": true, "stringvalue": true, "numbervalue": true, "structvalue": true, "listvalue": true, "defaultvalue": true,
	"exact": true, "exactmatch": true, "prefix": true, "prefixmatch": true, "suffix": true, "suffixmatch": true, "contains": true, "containsmatch": true,
	"regex": true, "saferegex": true, "saferegexmatch": true, "stringmatch": true, "valuematch": true, "rangematch": true, "literal": true, "formatstring": true,
}

func isContent(name string) bool { return contents[strings.ToLower(separators.Replace(name))] }
