package redact

import "strings"

// Hidden stands where something was.
const Hidden = "[redacted]"

// words of which one in a name makes its value a secret, without what separates
// words.
var words = []string{
	"password", "passwd", "passphrase", "secret", "token", "credential", "authorization",
	"apikey", "privatekey", "accesskey", "sessionkey", "signingkey", "encryptionkey", "hmackey", "jsonkey", "sharedkey", "pkcs12", "cookie", "bearer", "authkey", "connectionstring",
}

// ends of names whose values are secrets: of headers mostly, and of those kinds of keys
// that open something. "key" alone is none of them, nor are keys by which something is
// found: routing-key, hash_key, descriptor_key.
var ends = []string{
	"auth", "session", "sessionid", "signature", "signature256", "hmac", "hmacsha1", "hmacsha256", "hmacsha512", "dsn", "connstr", "connstring",
	"functionkey", "functionskey", "subscriptionkey", "masterkey", "rootkey", "adminkey", "accountkey", "storagekey", "appkey", "applicationkey",
	"clientkey", "consumerkey", "securitykey", "symmetrickey", "decryptionkey", "cipherkey", "sslkey", "tlskey", "sshkey", "licensekey",
}

// places are ends of names that say where a secret is, or what it is called, and
// not what it is.
var places = []string{"name", "names", "file", "filename", "path", "endpoint", "url", "uri", "type", "header", "config", "source", "prefix", "bucket", "issuer"}

// Suspicious reports whether what goes by this name is a secret: client_secret,
// apiKey, x-auth, proxy-authorization; not tls_secret_name, token_endpoint.
// "key" alone is not: in xDS all kinds of things are keys of something.
func Suspicious(name string) bool {
	var buf [64]byte
	plain := buf[:0]
	for i := 0; i < len(name); i++ {
		switch c := name[i]; {
		case 'A' <= c && c <= 'Z':
			plain = append(plain, c+'a'-'A')
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c >= 0x80:
			plain = append(plain, c)
		}
	}
	s := string(plain)
	switch s {
	case "pwd", "jwt", "pass", "pin", "sig", "sid", "xsid", "otp":
		return true
	}
	for _, e := range ends {
		// Envoy's extensions have names that end so: envoy.filters.http.basic_auth.
		if strings.HasSuffix(s, e) && !strings.HasPrefix(s, "envoy") {
			return true
		}
	}
	for _, w := range words {
		if !strings.Contains(s, w) {
			continue
		}
		for _, p := range places {
			if strings.HasSuffix(s, p) {
				return false
			}
		}
		return true
	}
	return false
}

// hosts are names of what holds a host, where some write user:password@host.
var hosts = map[string]bool{"hostredirect": true, "hostrewrite": true, "hostrewriteliteral": true, "authority": true, "host": true}

func isHost(name string) bool {
	return hosts[strings.ToLower(strings.Trim(strings.ReplaceAll(name, "_", ""), ":"))]
}
