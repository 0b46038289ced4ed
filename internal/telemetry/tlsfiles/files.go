package tlsfiles

import (
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
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
		m.roots = x509.NewCertPool()
		if !m.roots.AppendCertsFromPEM(pem) {
			return nil, &Error{name, fmt.Errorf("no certificate in %s", f.CAFile)}
		}
		sum.Write(pem)
	}
	sum.Sum(m.sum[:0])
	return m, nil
}

// pair joins a certificate and its key. Its error names the file at fault.
func pair(f Files, cert, key []byte) (*tls.Certificate, error) {
	both, err := tls.X509KeyPair(cert, key)
	if err == nil {
		return &both, nil
	}
	if !x509.NewCertPool().AppendCertsFromPEM(cert) {
		return nil, &Error{CertFile, fmt.Errorf("no certificate in %s", f.CertFile)}
	}
	// An error of tls about a key does not contain the key.
	return nil, &Error{KeyFile, fmt.Errorf("%s is not the key of %s: %w", f.KeyFile, f.CertFile, err)}
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

// paths returns the paths of the files.
func (f Files) paths() []string {
	return slices.DeleteFunc([]string{f.CertFile, f.KeyFile, f.CAFile}, func(path string) bool { return path == "" })
}
