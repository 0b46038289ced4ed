package helm

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	corev1 "k8s.io/api/core/v1"
)

// The relay of each profile starts with the arguments, the environment and the files of its pod, answers
// the probes, and keeps its API to those with the token. Only the addresses differ: they are free ports
// on loopback. The origin is away.
func TestPodStarts(t *testing.T) {
	binary := build(t)
	for _, name := range profiles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPod(t, split(t, render(t, "--values", profile(name))))
			file := p.dir + "/etc/relay/relay.yaml"
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, port := range p.Ports {
				address := fmt.Sprintf("address: 0.0.0.0:%d\n", port.ContainerPort)
				if port.Name != "xds" && port.Name != "admin" {
					continue // the relay's defaults
				}
				if !strings.Contains(string(text), address) {
					t.Errorf("the relay does not listen at the port %s", port.Name)
				}
				text = []byte(strings.ReplaceAll(string(text), address, "address: 127.0.0.1:0\n"))
			}
			write(t, file, string(text))

			cmd := exec.Command(binary, p.args...)
			cmd.Env = append(p.env, "RELAY_CLUSTER_ADDRESS=127.0.0.1:0", "RELAY_CLUSTER_GOSSIP=127.0.0.1:0")
			log, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines, admin := bufio.NewScanner(log), ""
			var logged []string
			for admin == "" && lines.Scan() {
				logged = append(logged, lines.Text())
				if m := regexp.MustCompile(`msg=serving .*\badmin=(\S+)`).FindStringSubmatch(lines.Text()); m != nil {
					admin = m[1]
				}
			}
			ended := make(chan error)
			go func() {
				for lines.Scan() {
				}
				ended <- cmd.Wait()
			}()
			if admin == "" {
				t.Fatalf("the relay does not serve: %v\n%s", <-ended, strings.Join(logged, "\n"))
			}
			probe(t, admin, p.LivenessProbe, http.StatusOK)
			probe(t, admin, p.ReadinessProbe, http.StatusOK)
			api := p.LivenessProbe.DeepCopy()
			api.HTTPGet.Path = "/clients"
			probe(t, admin, api, http.StatusUnauthorized)
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Error(err)
			}
			if err := <-ended; err != nil {
				t.Errorf("the relay ended: %v", err)
			}
		})
	}
}

// probe asks as the kubelet does, which does not verify certificates, until the relay answers so. A
// member without others is ready after 10 s.
func probe(t *testing.T, address string, p *corev1.Probe, want int) {
	t.Helper()
	get := p.HTTPGet
	if get.Port != intstr.FromString("admin") {
		t.Errorf("%s is probed at the port %s", get.Path, get.Port.String())
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	client := http.Client{Transport: transport, Timeout: 5 * time.Second}
	url := strings.ToLower(string(get.Scheme)) + "://" + address + get.Path
	got := ""
	for tick, end := time.NewTicker(100*time.Millisecond), time.Now().Add(time.Minute); time.Now().Before(end); <-tick.C {
		answer, err := client.Get(url)
		if err != nil {
			got = err.Error()
			continue
		}
		_ = answer.Body.Close() // it was not read
		if got = answer.Status; answer.StatusCode == want {
			return
		}
	}
	t.Errorf("%s: got %s, want %d", url, got, want)
}
