package integration

import (
	"crypto/tls"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/xdstest"
)

// problem is the part of a problem in /server_info that the tests read.
type problem struct{ Severity, Text, Impact string }

// problems returns the relay's own problems.
func (r *relay) problems() []problem {
	r.t.Helper()
	var info struct{ Problems []problem }
	if err := r.GetJSON("/server_info", &info); err != nil {
		r.t.Fatal(err)
	}
	return info.Problems
}

// hasProblem reports whether there is a problem of this severity whose text begins so.
func hasProblem(list []problem, severity, text string) bool {
	for _, p := range list {
		if p.Severity == severity && strings.HasPrefix(p.Text, text) {
			return true
		}
	}
	return false
}

// The relay says that its own certificates expire, and that one has expired, in the log, in validate
// and among its problems. It serves with expired certificates. A renewed one ends the problem.
func TestOwnCertificatesExpire(t *testing.T) {
	t.Parallel()
	certs := issue(t)
	o := origin(t, xdstest.Linear, grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{certs.ca.Pair(t, tlstest.DNS("origin.test")).TLS(t)},
	})))
	const day = 24 * time.Hour
	of := func(name string, lifetime, expiresIn time.Duration) map[string]any {
		cert, key := certs.ca.Pair(t, tlstest.CN(name), tlstest.Loopback(), tlstest.Expiring(expiresIn, lifetime)).Write(t, certs.dir, name)
		return map[string]any{"cert_file": cert, "key_file": key}
	}
	write := func(name string, expiresIn time.Duration) map[string]any { return of(name, 365*day, expiresIn) }
	upstream := write("upstream", 3*day)
	upstream["ca_file"], upstream["server_name"] = filepath.Join(certs.dir, "ca"), "origin.test"
	s := xdstest.QuickConfig().With(xdstest.Config{
		"upstream.origins": []map[string]any{{"address": o.Address, "name": "one", "tls": upstream}},
		"downstream.listeners": []map[string]any{
			{"address": "127.0.0.1:0", "tls": write("old", -time.Hour)},
			{"address": "127.0.0.1:0", "tls": write("brief", 40*day)},
			{"address": "127.0.0.1:0", "tls": write("week", 6*day)},
			{"address": "127.0.0.1:0", "tls": write("month", 20*day)},
			{"address": "127.0.0.1:0", "tls": write("fine", 40*day)},
			{"address": "127.0.0.1:0", "tls": of("daily", day, 10*time.Hour)},
		},
	})
	delete(s, "downstream.address")
	file := s.WriteFile(t)

	run := func(args ...string) (said string, code int) {
		cmd := exec.Command(xdstest.Binary(t), args...)
		out, _ := cmd.CombinedOutput() // the exit code is checked
		return strings.TrimSpace(string(out)), cmd.ProcessState.ExitCode()
	}
	validate := func(code int, want ...string) {
		t.Helper()
		said, got := run("validate", "--config", file)
		lines := strings.Split(said, "\n")
		if got != code || len(lines) != len(want) {
			t.Fatalf("validate: exit %d\n%s", got, said)
		}
		for i, text := range want {
			if !strings.Contains(lines[i], text) {
				t.Errorf("validate says %q, want %q", lines[i], text)
			}
		}
	}
	soon := []string{
		"downstream.listeners[2].tls.cert_file: warning: the certificate expires at 20",
		"downstream.listeners[3].tls.cert_file: warning: the certificate expires at 20",
		"upstream.origins[0].tls.cert_file: warning: the certificate expires at 20",
	}
	r := start(t, "", nil, "serve", "--config", file)
	const expired = "the certificate of downstream.listeners[0].tls expired at 20"
	r.logs(1, `level=ERROR msg="certificate has expired" of=downstream.listeners[0].tls expires=`)
	for _, of := range []string{"downstream.listeners[2].tls", "downstream.listeners[3].tls", `"origin one"`} {
		r.logs(1, `level=WARN msg="certificate expires soon" of=`+of+" expires=")
	}
	list := r.problems()
	if !hasProblem(list, "error", expired) || !hasProblem(list, "warning", "the certificate of origin one expires at 20") ||
		!hasProblem(list, "warning", "the certificate of downstream.listeners[3].tls expires at 20") || hasProblem(list, "warning", "the certificate of downstream.listeners[4].tls") ||
		hasProblem(list, "warning", "the certificate of downstream.listeners[5].tls") {
		t.Errorf("the problems are %+v", list)
	}

	// A certificate expires while the relay runs.
	write("brief", 5*time.Second)
	r.logs(1, `level=WARN msg="certificate expires soon" of=downstream.listeners[1].tls expires=`)
	r.logs(1, `level=ERROR msg="certificate has expired" of=downstream.listeners[1].tls expires=`)
	validate(1, append([]string{
		"downstream.listeners[0].tls.cert_file: the certificate expired at 20",
		"downstream.listeners[1].tls.cert_file: the certificate expired at 20",
	}, soon...)...)

	// The certificate comes before the clients that reject it.
	if c, err := tls.Dial("tcp", r.Addresses[0], &tls.Config{RootCAs: certs.ca.Pool(), NextProtos: []string{"h2"}}); err == nil {
		_ = c.Close()
		t.Error("a client accepts the expired certificate")
	}
	r.WaitMetric(1, "refused_total", "reason", "tls_handshake")
	list = r.problems()
	if list[0].Severity != "error" || !strings.HasPrefix(list[0].Text, expired) || !strings.Contains(list[len(list)-1].Text, "reason tls_handshake") {
		t.Errorf("the problems are %+v", list)
	}
	if out, _ := run("status", "--admin", r.Admin); !strings.Contains(out, "! "+expired) {
		t.Errorf("relay status prints\n%s", out)
	}

	write("old", 40*day)
	write("brief", 40*day)
	xdstest.Eventually(t, "no problem of renewed certificates", xdstest.Holds(func() bool {
		list := r.problems()
		return !hasProblem(list, "error", "the certificate of ")
	}))
	validate(0, append(soon, "is valid")...)
}
