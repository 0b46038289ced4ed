package grpcio

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"xdsrelay/internal/xdstest"
)

// A process has 150 xDS targets. C-core opens a stream for each, all on one connection. With
// streams_per_connection as docs/clients.md says, all targets answer. With less, no target hangs:
// calls to the targets over the limit fail, and the error names the limit.
func TestManyTargets(t *testing.T) {
	const targets = 150
	for _, limit := range []int{targets, 100} {
		t.Run(fmt.Sprintf("streams_per_connection=%d", limit), func(t *testing.T) {
			xdstest.PythonEnv(t)
			t.Parallel()
			o := xdstest.StartOrigin(t, xdstest.OriginOptions{})
			resources := service("target", xdstest.StartGRPCBackend(t, "blue"))
			for i := range targets {
				name := fmt.Sprintf("target-%d", i)
				resources = append(resources, xdstest.APIListener(name, name), xdstest.Routes(name, "target", 0))
			}
			o.Put(key, resources...)
			r := xdstest.StartRelay(t, xdstest.QuickConfig().With(xdstest.Config{
				"upstream.origins":                         xdstest.Origins(o.Address),
				"downstream.limits.streams_per_connection": limit,
			}))
			answered, failed := callTargets(t, r.Address, targets)
			if answered != limit || len(failed) != targets-limit {
				t.Errorf("%d targets answered and %d failed, want %d and %d: %q", answered, len(failed), limit, targets-limit, failed)
			}
			for _, f := range failed {
				if !strings.Contains(f, "downstream.limits.streams_per_connection") {
					t.Errorf("the error does not name the limit: %s", f)
				}
			}
		})
	}
}

// callTargets runs testdata/targets.py with a relay as the control plane. It returns how many
// targets answered, and the errors of the others.
func callTargets(t testing.TB, relay string, targets int) (answered int, failed []string) {
	t.Helper()
	cmd := exec.Command(filepath.Join(xdstest.PythonEnv(t), "bin", "python"), filepath.Join("testdata", "targets.py"), "target", fmt.Sprint(targets))
	cmd.Env = append(os.Environ(), "GRPC_XDS_BOOTSTRAP="+bootstrap(t, "grpc.json", map[string]string{"127.0.0.1:15010": relay}), "no_grpc_proxy=127.0.0.1", "GRPC_VERBOSITY=NONE") // its log would be between the lines
	var mu sync.Mutex
	p := xdstest.StartProcess(t, "targets.py", cmd, func(line string) {
		mu.Lock()
		defer mu.Unlock()
		switch kind, rest, _ := strings.Cut(line, " "); kind {
		case "answer":
			answered++
		case "error":
			failed = append(failed, rest)
		}
	})
	<-p.Exited()
	mu.Lock()
	defer mu.Unlock()
	return answered, failed
}
