package promql

import (
	"bufio"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

const root = "../.."

// others are metrics that the demo does not have: those of TLS, and that of Prometheus itself.
const others = `# TYPE xdsrelay_certificate_expiry_timestamp_seconds gauge
xdsrelay_certificate_expiry_timestamp_seconds{of="downstream.tls"} 4102444800
# TYPE xdsrelay_certificate_lifetime_seconds gauge
xdsrelay_certificate_lifetime_seconds{of="downstream.tls"} 31536000
# TYPE xdsrelay_certificate_reload_failed gauge
xdsrelay_certificate_reload_failed{of="downstream.tls"} 0
# TYPE up gauge
up 1
`

// scraped are the metrics of a real relay between an origin and clients of both variants.
var scraped = sync.OnceValues(func() (map[string]*dto.MetricFamily, error) {
	dir, err := os.MkdirTemp("", "promql-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "relay")
	build := exec.Command("go", "build", "-o", binary, "./cmd/relay")
	build.Dir, build.Stderr = root, os.Stderr
	if err := build.Run(); err != nil {
		return nil, err
	}
	demo := exec.Command(binary, "demo", "--clients", "20", "--for", "2m")
	out, err := demo.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := demo.Start(); err != nil {
		return nil, err
	}
	defer func() {
		_ = demo.Process.Signal(syscall.SIGTERM) // it may have ended
		_, _ = io.Copy(io.Discard, out)
		_ = demo.Wait()
	}()
	address := regexp.MustCompile(`http://127\.0\.0\.1:\d+`)
	admin := ""
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if a := address.FindString(lines.Text()); a != "" && admin == "" {
			admin = a
		}
		if strings.Contains(lines.Text(), "clients accepted it") {
			break // a change has reached all clients
		}
	}
	client := http.Client{Timeout: 20 * time.Second}
	answer, err := client.Get(admin + "/metrics")
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	all, err := parser.TextToMetricFamilies(answer.Body)
	if err != nil {
		return nil, err
	}
	more, err := parser.TextToMetricFamilies(strings.NewReader(others))
	maps.Copy(all, more)
	return all, err
})

func families(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	all, err := scraped()
	if err != nil {
		t.Fatal(err)
	}
	if all["xdsrelay_downstream_acks_total"] == nil {
		t.Fatalf("the relay gave no metrics: %d families", len(all))
	}
	return all
}
