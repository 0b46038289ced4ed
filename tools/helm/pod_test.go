package helm

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// pod is a pod of the rendered StatefulSet, with its files below dir.
type pod struct {
	*corev1.Container
	dir  string
	args []string
	env  []string
}

// newPod writes the files of a pod's volumes, and moves the paths in its configuration and its arguments
// to dir. A file that no volume has does not exist.
func newPod(t *testing.T, all objects) *pod {
	t.Helper()
	spec := get[appsv1.StatefulSet](t, all, "StatefulSet/relay").Spec
	p := &pod{Container: &spec.Template.Spec.Containers[0], dir: t.TempDir()}
	move := strings.NewReplacer("/etc/relay", p.dir+"/etc/relay", "/run/relay", p.dir+"/run/relay", "/var/lib/relay", p.dir+"/var/lib/relay")
	for _, a := range p.Args {
		p.args = append(p.args, move.Replace(a))
	}
	for _, e := range p.Env {
		if e.ValueFrom != nil {
			e.Value = "127.0.0.1" // status.podIP
		}
		p.env = append(p.env, e.Name+"="+e.Value)
	}
	volumes := make(map[string]corev1.VolumeSource)
	for _, v := range spec.Template.Spec.Volumes {
		volumes[v.Name] = v.VolumeSource
	}
	for _, c := range spec.VolumeClaimTemplates {
		volumes[c.Name] = corev1.VolumeSource{PersistentVolumeClaim: new(corev1.PersistentVolumeClaimVolumeSource)}
	}
	secret := secretFiles(t)
	for _, m := range p.VolumeMounts {
		files := make(map[string]string)
		switch v := volumes[m.Name]; {
		case v.ConfigMap != nil:
			for file, text := range get[corev1.ConfigMap](t, all, "ConfigMap/"+v.ConfigMap.Name).Data {
				files[file] = move.Replace(text)
			}
		case v.Secret != nil:
			files = secret
		case v.Projected != nil:
			for _, s := range v.Projected.Sources {
				if s.ServiceAccountToken != nil {
					files[s.ServiceAccountToken.Path] = "token"
				} else {
					files["ca.crt"] = secret["ca.crt"]
				}
			}
		case v.PersistentVolumeClaim != nil:
		default:
			t.Errorf("no volume for the mount %s", m.Name)
		}
		if m.SubPath != "" {
			t.Errorf("%s is mounted by subPath, which Kubernetes never updates", m.Name)
		}
		for file, text := range files {
			write(t, filepath.Join(p.dir, m.MountPath, file), text)
		}
		if err := os.MkdirAll(filepath.Join(p.dir, m.MountPath), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// secretFiles are the files of all Secrets together: a certificate that is its own CA and has the names
// of a member, a gossip key and a token.
func secretFiles(t *testing.T) map[string]string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	member, err := url.Parse("spiffe://example.com/ns/mesh/sa/relay")
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "relay"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    []string{"relay-peers.mesh.svc", "localhost"}, URIs: []*url.URL{member},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	gossip := make([]byte, 32)
	_, _ = rand.Read(gossip) // it never fails
	return map[string]string{
		"tls.crt": cert, "ca.crt": cert,
		"tls.key":    string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})),
		"gossip.key": base64.StdEncoding.EncodeToString(gossip) + "\n",
		"token":      "secret-of-operators",
	}
}
