//go:build linux

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// secured has the files of a server's certificate, which is self-signed.
type secured struct {
	Cert string `json:"cert,omitempty"`
	Key  string `json:"key,omitempty"`
}

// newSecured makes a certificate for this run.
func newSecured(dir string) (*secured, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "loadtest"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA: true, BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	s := &secured{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	return s, errors.Join(
		os.WriteFile(s.Cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600),
		os.WriteFile(s.Key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600),
	)
}

// options are a gRPC server's options, none without TLS.
func (s *secured) options() ([]grpc.ServerOption, error) {
	if s == nil {
		return nil, nil
	}
	creds, err := credentials.NewServerTLSFromFile(s.Cert, s.Key)
	return []grpc.ServerOption{grpc.Creds(creds)}, err
}

// listener adds TLS to a listener.
func (s *secured) listener(l net.Listener) (net.Listener, error) {
	if s == nil {
		return l, nil
	}
	cert, err := tls.LoadX509KeyPair(s.Cert, s.Key)
	return tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}}), err
}

// connectTLS connects client i of a crowd over TLS. A goroutine reads it. The cost is the same for
// all servers.
func connectTLS(s *crowdSettings, t *tally, i int) error {
	text, err := os.ReadFile(s.Load.TLS.Cert)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	c := s.client(-1)
	config := &tls.Config{RootCAs: pool}
	if !s.Raw {
		config.NextProtos = []string{"h2"}
	}
	if c.tls, err = tls.Dial("tcp", s.Addr, config); err != nil {
		return err
	}
	if err := c.begin(s, i); err != nil {
		return err
	}
	go func() { // until the process ends
		r, buf := &reader{tally: t}, make([]byte, 32<<10)
		for {
			n, err := c.tls.Read(buf)
			if err == nil {
				err = r.take(c, buf[:n])
			}
			if err != nil {
				t.fail(fmt.Errorf("client: %w", err))
				return
			}
		}
	}()
	return nil
}
