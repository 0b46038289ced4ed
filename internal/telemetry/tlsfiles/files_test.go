package tlsfiles

import (
	"bytes"
	"encoding/pem"
	"errors"
	"os"
	"strings"
	"testing"

	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
)

// A file with a part that cannot be read is not used. encoding/pem, and so crypto/x509 and
// crypto/tls, would skip the part.
func TestDamagedFilesAreNotUsed(t *testing.T) {
	ca, second, third := tlstest.NewAuthority(t), tlstest.NewAuthority(t), tlstest.NewAuthority(t)
	leaf := ca.Pair(t)
	one, two, three := string(ca.PEM()), string(second.PEM()), string(third.PEM())
	noBase64 := strings.Replace(two, "\n", "\n?", 1)
	noDER := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("no certificate")}))
	for name, c := range map[string]struct{ text, says string }{
		"good":                   {one + "a comment\n" + two + three, ""},
		"without its last line":  {one + strings.TrimSuffix(two, "\n"), ""},
		"with carriage returns":  {strings.ReplaceAll(one+two, "\n", "\r\n"), ""},
		"with a key":             {one + string(leaf.Key), ""},
		"no base64":              {one + noBase64 + three, "only 2 of 3 PEM blocks can be read"},
		"first without base64":   {noBase64 + one, "only 1 of 2 PEM blocks can be read"},
		"no DER":                 {one + noDER + three, "PEM block 2 of 3: x509: "},
		"cut in the second":      {one + two[:len(two)/2], "only 1 of 2 PEM blocks can be read"},
		"cut before its end":     {one + strings.TrimSuffix(two, "-----END CERTIFICATE-----\n"), "only 1 of 2 PEM blocks can be read"},
		"beginning overwritten":  {one + strings.Replace(two, "-----BEGIN", "----BEGIN", 1), "only 1 of 2 PEM blocks can be read"},
		"a byte order mark":      {"\ufeff" + one + two, "only 1 of 2 PEM blocks can be read"},
		"indented":               {one + "  " + strings.ReplaceAll(two, "\n", "\n  "), "only 1 of 2 PEM blocks can be read"},
		"of OpenSSL's own type":  {one + strings.ReplaceAll(two, "CERTIFICATE", "TRUSTED CERTIFICATE"), "must be a CERTIFICATE"},
		"no certificate at all":  {string(leaf.Key), "no certificate in "},
		"two blocks in one line": {one + strings.TrimSuffix(two, "\n") + three, "PEM blocks can be read"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			// As the authorities of clients or of an origin, and as the chain behind a certificate.
			cert, key := leaf.Write(t, dir, "tls")
			files := map[string]Files{
				CAFile: {CAFile: tlstest.File(t, dir, "ca", []byte(c.text))},
			}
			if !strings.HasPrefix(c.says, "no certificate") {
				tlstest.File(t, dir, "tls.crt", append(bytes.Clone(leaf.Cert), c.text...))
				files[CertFile] = Files{CertFile: cert, KeyFile: key}
			}
			for of, f := range files {
				err := Check(f)
				at := (*Error)(nil)
				switch {
				case c.says == "" && err != nil:
					t.Errorf("%s: %v", of, err)
				case c.says != "" && (!errors.As(err, &at) || at.File != of || !strings.Contains(err.Error(), lastOf(c.says))):
					t.Errorf("%s: the error is %v, and does not say %q", of, err, c.says)
				}
			}
		})
	}
}

// lastOf leaves out the numbers of blocks, which differ if the text is behind another certificate.
func lastOf(says string) string {
	for _, end := range []string{"PEM blocks can be read", "x509: "} {
		if strings.HasSuffix(says, end) {
			return end
		}
	}
	return says
}

// The system's bundle of authorities has no damaged part.
func TestSystemBundleIsNotDamaged(t *testing.T) {
	const bundle = "/etc/ssl/certs/ca-certificates.crt"
	text, err := os.ReadFile(bundle)
	if err != nil {
		t.Skip(err)
	}
	if _, err := ParseCAs(bundle, text); err != nil {
		t.Error(err)
	}
}
