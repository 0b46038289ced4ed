package tlsfiles

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// Files names certificate files.
type Files struct {
	// CertFile and KeyFile are the relay's own certificate and key; both or none.
	CertFile, KeyFile string
	// CAFile has the authorities that verify the other side. Empty: a client uses the system's, and
	// a server asks for no client certificates.
	CAFile string
	// CAKey is the configuration's key for CAFile; empty: ca_file.
	CAKey string
}

// The configuration's keys for the files.
const (
	CertFile = "cert_file"
	KeyFile  = "key_file"
	CAFile   = "ca_file"
)

// Error is a fault of one of the files.
type Error struct {
	// File is CertFile, KeyFile, CAFile or the CAKey of the files.
	File string
	Err  error
}

func (e *Error) Error() string { return e.File + ": " + e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// material is the content of the files.
type material struct {
	cert  *tls.Certificate // nil: none
	roots *x509.CertPool   // nil: none
	// validity is that of cert.
	validity Validity
	// sum is a checksum of the files.
	sum [sha256.Size]byte
}

// maxFile bounds a file in bytes. A bundle of all public authorities has a quarter of a megabyte.
const maxFile = 16 << 20

// load reads the files. The error is an *Error.
func (f Files) load() (*material, error) {
	m, sum := new(material), sha256.New()
	if f.CertFile != "" || f.KeyFile != "" {
		cert, err := read(CertFile, f.CertFile)
		if err != nil {
			return nil, err
		}
		key, err := read(KeyFile, f.KeyFile)
		if err != nil {
			return nil, err
		}
		if m.cert, err = pair(f, cert, key); err != nil {
			return nil, err
		}
		m.validity = validityOf(m.cert)
		sum.Write(cert)
		sum.Write(key)
	}
	if f.CAFile != "" {
		name := cmp.Or(f.CAKey, CAFile)
		pem, err := read(name, f.CAFile)
		if err != nil {
			return nil, err
		}
		if m.roots, err = ParseCAs(f.CAFile, pem); err != nil {
			return nil, &Error{name, err}
		}
		sum.Write(pem)
	}
	sum.Sum(m.sum[:0])
	return m, nil
}

// pair joins a certificate and its key. Its error names the file at fault.
func pair(f Files, cert, key []byte) (*tls.Certificate, error) {
	if _, err := ParseCertificates(f.CertFile, cert); err != nil {
		return nil, &Error{CertFile, err}
	}
	if _, err := parseBlocks(f.KeyFile, key); err != nil {
		return nil, &Error{KeyFile, err}
	}
	both, err := tls.X509KeyPair(cert, key)
	if err != nil {
		// An error of tls about a key does not contain the key.
		return nil, &Error{KeyFile, fmt.Errorf("%s is not the key of %s: %w", f.KeyFile, f.CertFile, err)}
	}
	return &both, nil
}

// ReadCAs returns the certificates in a file: see ParseCAs.
func ReadCAs(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return ParseCAs(file, text)
}

// ParseCAs returns the certificates in the text of a file. A part that cannot be read is an error:
// without it, the relay would reject certificates of a listed authority.
func ParseCAs(file string, text []byte) (*x509.CertPool, error) {
	certs, err := ParseCertificates(file, text)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	for _, c := range certs {
		pool.AddCert(c)
	}
	return pool, nil
}

// ParseCertificates returns the certificates in the text of a file: at least one, or an error.
func ParseCertificates(file string, text []byte) (out []*x509.Certificate, err error) {
	blocks, err := parseBlocks(file, text)
	if err != nil {
		return nil, err
	}
	const kind = "CERTIFICATE"
	for i, b := range blocks {
		if !strings.HasSuffix(b.Type, kind) { // a key, for example
			continue
		}
		c, err := x509.ParseCertificate(b.Bytes)
		if err == nil && b.Type != kind {
			err = fmt.Errorf("must be a %s, but is a %s", kind, b.Type)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: PEM block %d of %d: %w", file, i+1, len(blocks), err)
		}
		out = append(out, c)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no certificate in %s", file)
	}
	return out, nil
}

// parseBlocks returns the PEM blocks in the text of a file. encoding/pem skips blocks that it cannot
// read; here they are an error, so a file that is damaged or written halfway is not used.
func parseBlocks(file string, text []byte) (out []*pem.Block, err error) {
	for rest := text; ; {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil {
			break
		}
		out = append(out, b)
	}
	begins, ends := 0, 0
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		if bytes.HasPrefix(line, []byte("-----BEGIN ")) {
			begins++
		} else if bytes.HasPrefix(line, []byte("-----END ")) {
			ends++
		}
	}
	if n := max(begins, ends); n != len(out) || begins != ends {
		return nil, fmt.Errorf("%s: the file is damaged or not complete: only %d of %d PEM blocks can be read", file, len(out), n)
	}
	return out, nil
}

func read(what, path string) ([]byte, error) {
	if path == "" {
		return nil, &Error{what, errors.New("is missing; cert_file and key_file need each other")}
	}
	r, err := os.Open(path)
	if err != nil {
		return nil, &Error{what, err}
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("%s: larger than %d bytes", path, maxFile)
	}
	if err != nil {
		return nil, &Error{what, err}
	}
	return b, nil
}

func (f Files) paths() []string {
	return slices.DeleteFunc([]string{f.CertFile, f.KeyFile, f.CAFile}, func(path string) bool { return path == "" })
}
