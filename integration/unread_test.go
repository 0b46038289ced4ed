package integration

import (
	"net"
	"os/exec"
	"testing"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xdstest"
)

// fewFiles starts a relay that may open 40 files, and 60 connections to it. The returned function closes
// them.
func fewFiles(t *testing.T, more xdstest.Config) (r *relay, leave func()) {
	t.Helper()
	o := origin(t, xdstest.Linear)
	o.Put("edge", xdstest.Web(1)...)
	config := xdstest.QuickConfig().With(xdstest.Config{"upstream.origins": xdstest.Origins(o.Address)}).With(more).WriteFile(t)
	cmd := exec.Command("sh", append([]string{"-c", `ulimit -n 40 && exec "$@"`, "sh"}, xdstest.Command(t, "serve", "--config", config).Args...)...)
	r = &relay{xdstest.StartRelayCommand(t, cmd), t}
	var conns []net.Conn
	leave = func() {
		for _, c := range conns {
			_ = c.Close() // no request was sent on it
		}
	}
	t.Cleanup(leave)
	for range 60 {
		c, err := net.Dial("tcp", r.Address)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	return r, leave
}

// served waits until a client is served.
func (r *relay) served() {
	r.t.Helper()
	waitFor(r.t, client(r.t, r.Address, fleet.ClientConfig{Node: node("n", "edge"), Behaviour: fleet.Envoy}), "what the origin has", hasAll(xdstest.Web(1)...))
}

// With more clients than file descriptors, by default the further clients wait, and the operators'
// paths answer.
func TestFewFileDescriptors(t *testing.T) {
	t.Parallel()
	r, leave := fewFiles(t, nil)
	r.WaitLog(t, 1, `msg="client connections wait" peer=127.0.0.1:`)
	for _, path := range []string{"/live", "/ready", "/metrics"} {
		if _, err := r.Get(path); err != nil {
			t.Error(err)
		}
	}
	r.problem(true, "as many connections are open as downstream.limits.connections allows (20)")
	r.problem(true, "connections of clients wait; reason connections: downstream: peer 127.0.0.1:")
	if n := r.Metric("refused_total", "reason", "open_files"); n != 0 {
		t.Errorf("%v times there were too many open files", n)
	}
	leave()
	r.served()
}

// Without the limit, the relay says that it has too many open files.
func TestTooManyOpenFiles(t *testing.T) {
	t.Parallel()
	r, leave := fewFiles(t, xdstest.Config{"downstream.limits": map[string]any{"connections": 0}})
	r.WaitLog(t, 1, `msg="client connection not accepted" listener=downstream reason=open_files`)
	leave()
	r.served()
	r.WaitMetric(1, "refused_total", "reason", "open_files")
	r.problem(true, "connections of clients wait; reason open_files: downstream: accept tcp")
}
