package relay

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
)

// The admin API shows a renewed certificate that cannot be used, by its key, until it is repaired.
func TestRejectedCertificatesAreShown(t *testing.T) {
	dir := t.TempDir()
	ca := tlstest.NewAuthority(t)
	one := ca.Pair(t)
	cert, key := one.Write(t, dir, "one")
	files := "{cert_file: " + cert + ", key_file: " + key + "}"
	g := newReloadFixtureOf(t, "name: r\nupstream: {node: node, origins: [{address: 'file:.'}]}\nadmin: {address: '127.0.0.1:0', tls: "+files+"}\n"+
		"downstream: {listeners: [{address: '127.0.0.1:0'}, {address: '127.0.0.1:0', tls: "+files+"}]}\n"+
		"cluster: {name: c, address: '127.0.0.1:0', gossip: '127.0.0.1:0', identity: '\"x\" in peer.uri_sans', tls: {cert_file: "+cert+", key_file: "+key+", ca_file: "+tlstest.File(t, dir, "ca", ca.PEM())+"}}\n")
	shows := func() (of []string) {
		for _, c := range g.r.certs() {
			c.Reload()
		}
		for _, n := range g.r.configuration().RejectedFiles {
			if n.Since.IsZero() || !strings.Contains(n.Error, "cert_file: no certificate in "+cert) {
				t.Errorf("%+v", n)
			}
			of = append(of, n.Of)
		}
		return of
	}
	if got := shows(); got != nil {
		t.Errorf("%q, before anything changed", got)
	}
	tlstest.File(t, dir, filepath.Base(cert), []byte("no certificate"))
	if got := shows(); !slices.Equal(got, []string{"downstream.listeners[1].tls", "admin.tls", "cluster.tls"}) {
		t.Errorf("%q are not taken", got)
	}
	tlstest.File(t, dir, filepath.Base(cert), one.Cert)
	if got := shows(); got != nil {
		t.Errorf("%q are not taken, and they are what is in force", got)
	}
}

// A requested reload reads certificates and the directories of origins, also if no file was seen to
// change.
func TestRequestedReloadReadsEveryFile(t *testing.T) {
	dir := t.TempDir()
	cert, key := tlstest.NewAuthority(t).Pair(t).Write(t, dir, "one")
	files := "{cert_file: " + cert + ", key_file: " + key + "}"
	g := newReloadFixtureOf(t, "name: r\nupstream: {origins: [{address: 'file:.'}, {address: '127.0.0.1:1', tls: "+files+"}]}\nadmin: {address: '127.0.0.1:0', tls: "+files+"}\n"+
		"downstream: {address: '127.0.0.1:0', tls: "+files+"}\n")
	tlstest.File(t, dir, filepath.Base(cert), []byte("no certificate"))
	faults := func() (of []string) {
		for _, f := range g.r.configuration().RejectedFiles {
			of = append(of, f.Of)
		}
		for _, o := range g.r.origins.Origins() {
			if len(o.Faults) > 0 {
				of = append(of, "origin "+o.Name)
			}
		}
		return of
	}
	g.reload(false)
	if got := faults(); got != nil {
		t.Errorf("%q have faults before they were read", got)
	}
	g.reload(true)
	// relay.yaml is no resource of the directory.
	if got, want := faults(), []string{"downstream.tls", "admin.tls", "origin file:.", "origin 127.0.0.1:1"}; !slices.Equal(got, want) {
		t.Errorf("%q have faults, want %q", got, want)
	}
}
