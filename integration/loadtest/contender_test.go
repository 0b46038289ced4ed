//go:build linux

package loadtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/xdstest"
)

// The servers that are compared.
const (
	nameRaw      = "raw"      // the same bytes written to each socket, a goroutine each
	nameBare     = "bare"     // grpc-go with the shared bytes, no protocol state
	nameRelay    = "relay"    // one delta stream for each key to a go-control-plane origin
	nameSnapshot = "snapshot" // go-control-plane's server and snapshot cache
	nameLinear   = "linear"   // go-control-plane's server and linear cache, with the relay's transport options
	nameOrigin   = "origin"   // nameSnapshot as the origin of replicas, with its versions computed ahead
)

const (
	// warmups are rounds before the first measured one. After them sockets have grown their buffers
	// and pools are filled.
	warmups = 2
	// roundMost bounds a round of one contender, and the start of a crowd.
	roundMost = 2 * time.Minute
)

// contender is a server with a crowd of clients. Only one goroutine may use it.
type contender struct {
	*xdstest.Process
	t     testing.TB
	name  string
	load  load
	addr  string
	admin string  // address of its HTTP server
	next  prepare // of the server, or of its origin
	crowd *crowd  // the clients that a round waits for
	gen   int     // the last one pushed
	// origin is that of the relay.
	origin *origin
}

// start starts a server. config has more keys of the relay's configuration.
func (b *bench) start(name string, config xdstest.Config) *contender {
	b.Helper()
	c := &contender{t: b, name: name, load: b.load, addr: xdstest.FreeAddress(b), admin: xdstest.FreeAddress(b)}
	if b.load.TLS {
		b.load.Cert, b.load.Key = tlstest.NewAuthority(b).Pair(b, tlstest.Loopback()).Write(b, b.TempDir(), "server")
		c.load = b.load
	}
	var cmd *exec.Cmd
	if name == nameRelay {
		resources, next := newSnapshots(b, b.load, true)
		c.next = next
		c.origin = &origin{t: b, cache: resources, addr: xdstest.FreeAddress(b)}
		c.origin.start()
		b.Cleanup(func() { c.origin.stop() })
		all := xdstest.Config{
			"name": "loadtest", "log.level": "warn", "admin.address": c.admin,
			"downstream.address": c.addr, "downstream.drain": "0s",
			"upstream.origins": xdstest.Origins(c.origin.addr),
		}.With(config)
		if b.load.TLS {
			all["downstream.tls"] = map[string]any{"cert_file": b.load.Cert, "key_file": b.load.Key}
		}
		cmd = xdstest.Command(b, "serve", "--config", all.WriteFile(b))
	} else {
		settings, err := json.Marshal(serverSettings{name, b.load, c.addr, c.admin})
		if err != nil {
			b.Fatal(err)
		}
		cmd = exec.Command(os.Args[0], "-test.run=^TestServer$", "-test.timeout=0")
		cmd.Env = append(os.Environ(), serverVariable+"="+string(settings))
		c.next = func(n int) func() {
			c.get(fmt.Sprintf("/prepare?n=%d", n))
			return func() { c.get("/push") }
		}
	}
	c.run(cmd)
	c.awaitReady()
	return c
}

// run starts the process.
func (c *contender) run(cmd *exec.Cmd) {
	c.t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c.Process = xdstest.StartProcess(c.t, c.name, cmd, nil)
}

func (c *contender) awaitReady() {
	c.t.Helper()
	xdstest.Eventually(c.t, c.name+" is ready", func() error { _, err := xdstest.HTTPGet("http://" + c.admin + "/ready"); return err })
}

// get reads a path of the server's HTTP API. The answer is not compressed, which keeps its cost low.
func (c *contender) get(path string) []byte {
	c.t.Helper()
	body, err := xdstest.HTTPGet("http://" + c.admin + path)
	if err != nil {
		c.t.Fatalf("%s: %v\n%s", c.name, err, c.Tail(20))
	}
	return body
}

// metric returns the sum of the series of a metric. A summary counts its samples.
func (c *contender) metric(name string) (sum float64) {
	c.t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(c.get("/metrics"))))
	if err != nil || families[name] == nil {
		c.t.Fatalf("%s: /metrics: %s: %v", c.name, name, err)
	}
	for _, m := range families[name].GetMetric() {
		sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetSummary().GetSampleCount())
	}
	return sum
}

// allocated is how many bytes the server has ever allocated.
func (c *contender) allocated() float64 { return c.metric("go_memstats_alloc_bytes_total") }

// collect makes the server collect its garbage. The second collection empties the pools. The relay
// returns free memory by itself.
func (c *contender) collect() {
	for range 2 {
		c.get("/debug/pprof/heap?gc=1")
	}
	if c.name != nameRelay {
		c.get("/free")
	}
}

// A server that used at least quietCPU in quietTime is still busy: with ACKs, or its garbage.
const (
	quietTime = 20 * time.Millisecond
	quietCPU  = 500 * time.Microsecond
	quietMost = 20 * time.Second
)

// settle waits until the server is quiet, and returns its CPU time until then.
func (c *contender) settle() time.Duration {
	c.t.Helper()
	before := cpu(c.t, c.PID())
	for end := time.Now().Add(quietMost); time.Now().Before(end); {
		xdstest.Pause(c.t, quietTime)
		now := cpu(c.t, c.PID())
		if now-before < quietCPU {
			return now
		}
		before = now
	}
	c.t.Fatalf("%s is not quiet after %s", c.name, quietMost)
	return 0
}

// join connects a crowd, and waits until all its clients have their first response.
func (c *contender) join(s crowdSettings) *crowd {
	c.t.Helper()
	s.addr, s.raw = c.addr, c.name == nameRaw
	w := newCrowd(c.t, s)
	if !s.later {
		c.await(w, 0)
	}
	return w
}

// first connects one client, so that its key exists.
func (c *contender) first() {
	one := c.load
	one.Clients = 1
	c.join(crowdSettings{load: one})
}

// connect connects the clients that rounds wait for.
func (c *contender) connect() {
	c.t.Helper()
	c.crowd = c.join(crowdSettings{load: c.load})
	c.settle()
}

// warm makes the relay hold all names that clients will subscribe to. Otherwise a new name is
// answered only after the origin's response.
func (c *contender) warm() {
	if c.load.Names == 0 || c.name != nameRelay {
		return
	}
	l := c.load
	l.Delta, l.Asks = true, new(int)
	l.Clients = l.Clusters / l.Names
	l.Streams = min(l.Clients, 100)
	c.join(crowdSettings{load: l})
}

// await waits until all clients of a crowd have their nth generation. It checks that it has about its
// size.
func (c *contender) await(w *crowd, n int) round {
	c.t.Helper()
	r := w.await(c.t, n)
	want := c.load.size(n)
	most := want*12/10 + 500
	if c.name == nameSnapshot {
		most = max(most, c.load.size(0)*12/10+500) // in SotW it repeats everything that a client subscribes to
	}
	if r.bytes < want*8/10 || r.bytes > most {
		c.t.Fatalf("%s: clients received %d bytes, which is no response of about %d bytes", c.name, r.bytes, want)
	}
	return r
}

// change serves the next generation, and waits until all clients have it. begin is when it was told to.
func (c *contender) change() (begin int64, r round) {
	c.t.Helper()
	c.gen++
	push := c.next(c.gen)
	begin = monotonic()
	push()
	return begin, c.await(c.crowd, c.gen)
}

// profile writes profiles of the server to a directory while it has changes: of its CPU, and of its
// heap.
func (c *contender) profile(dir string) {
	file := filepath.Join(dir, c.name)
	done := make(chan error, 1)
	go func() {
		text, err := xdstest.HTTPGet("http://" + c.admin + "/debug/pprof/profile?seconds=5")
		done <- errors.Join(err, os.WriteFile(file+".pprof", text, 0o644))
	}()
	for {
		c.change()
		select {
		case err := <-done:
			if err = errors.Join(err, os.WriteFile(file+".heap.pprof", c.get("/debug/pprof/heap?gc=1"), 0o644)); err != nil {
				c.t.Fatal(err)
			}
			return
		default:
		}
	}
}
