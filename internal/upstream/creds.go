package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// TLSFiles are what a connection to an origin is secured with; without any of
// them it is plaintext. Each connection reads the files anew, so that renewed
// certificates are used from the next connection on.
type TLSFiles struct {
	CAFile     string // empty: the system's
	CertFile   string // with KeyFile: the relay's own
	KeyFile    string
	ServerName string // empty: the target's host
}

// credentials of a connection. The files are read once here, to tell of what is
// wrong with them at the start.
func (f TLSFiles) credentials() (credentials.TransportCredentials, error) {
	if f == (TLSFiles{}) {
		return insecure.NewCredentials(), nil
	}
	conf, err := f.load()
	if err != nil {
		return nil, err
	}
	return &fileCredentials{TransportCredentials: credentials.NewTLS(conf), files: f}, nil
}

func (f TLSFiles) load() (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.ServerName}
	if f.CAFile != "" {
		pem, err := os.ReadFile(f.CAFile)
		if err != nil {
			return nil, fmt.Errorf("tls.ca_file: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("tls.ca_file: no certificate in %s", f.CAFile)
		}
	}
	if f.CertFile != "" || f.KeyFile != "" {
		cert, err := tls.LoadX509KeyPair(f.CertFile, f.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("tls.cert_file, tls.key_file: %w", err)
		}
		conf.Certificates = []tls.Certificate{cert}
	}
	return conf, nil
}

// fileCredentials shake hands with what the files hold at the time. What is
// embedded answers for all that does not depend on them.
type fileCredentials struct {
	credentials.TransportCredentials
	files TLSFiles
}

func (c *fileCredentials) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conf, err := c.files.load()
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(conf).ClientHandshake(ctx, authority, conn)
}

func (c *fileCredentials) Clone() credentials.TransportCredentials {
	return &fileCredentials{TransportCredentials: c.TransportCredentials.Clone(), files: c.files}
}
