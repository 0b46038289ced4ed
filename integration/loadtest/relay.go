//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// build builds the relay into dir, unless a binary was given.
func (o *options) build(ctx context.Context, dir string) error {
	if o.relay != "" {
		return nil
	}
	o.relay = filepath.Join(dir, "relay")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", o.relay, "xdsrelay/cmd/relay")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("build the relay: %w", context.Cause(ctx))
		}
		return fmt.Errorf("build the relay: %w\n%s", err, out)
	}
	return nil
}

// relayConfig is the configuration except defaults: own addresses, and no log output.
const relayConfig = `name: loadtest
downstream: {address: "%s", drain: 0s%s%s}
upstream: {origins: [%s]%s}
admin: {address: "%s"}
log: {level: warn}
`

// startRelay starts the relay's binary behind an origin of its own.
func startRelay(ctx context.Context, o *options) (*contender, error) {
	dir, err := os.MkdirTemp(o.dir, "relay")
	if err != nil {
		return nil, err
	}
	if err := o.build(ctx, dir); err != nil {
		return nil, err
	}
	plain := o.load
	plain.TLS, plain.Ahead = nil, true
	origin, hello, err := startRole(ctx, "origin", roleSnapshot, plain)
	if err != nil {
		return nil, err
	}
	origins := []string{hello.Addr}
	if o.origins != nil {
		if origins, err = o.origins(hello.Addr); err != nil {
			origin.stop()
			return nil, err
		}
	}
	c, a, err := o.serve(ctx, dir, origins...)
	if err != nil {
		origin.stop()
		return nil, err
	}
	c.feed = origin
	c.allocated, c.collect, c.heap, c.admin = a.allocated, a.collect, a.heap, a
	c.heapProfile = a.heapProfile
	c.profile = func(ctx context.Context, path string, seconds int) error {
		return a.profile(ctx, path, seconds, c)
	}
	return c, nil
}

// serve starts the relay's binary behind origins, in this order.
func (o *options) serve(ctx context.Context, dir string, origins ...string) (*contender, admin, error) {
	addrs, err := freeAddrs(2)
	if err != nil {
		return nil, admin{}, err
	}
	file, secure := filepath.Join(dir, "relay.yaml"), ""
	if s := o.load.TLS; s != nil {
		secure = fmt.Sprintf(", tls: {cert_file: %q, key_file: %q}", s.Cert, s.Key)
	}
	list := `{address: "` + strings.Join(origins, `"}, {address: "`) + `"}`
	if err := os.WriteFile(file, fmt.Appendf(nil, relayConfig, addrs[0], secure, o.downstream, list, o.upstream, addrs[1]), 0o644); err != nil {
		return nil, admin{}, err
	}
	proc, err := start(nameRelay, exec.Command(o.relay, "serve", "--config", file))
	if err != nil {
		return nil, admin{}, err
	}
	a := admin{base: "http://" + addrs[1]}
	c := &contender{rest: o.rest, log: o.log, name: nameRelay, load: o.load, proc: proc, addr: addrs[0]}
	if err := a.ready(ctx, proc); err != nil {
		c.stop()
		return nil, admin{}, err
	}
	return c, a, nil
}

// freeAddrs finds free ports. The relay opens them a moment later. If another process is faster,
// the relay reports that and ends.
func freeAddrs(n int) ([]string, error) {
	var out []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		out = append(out, l.Addr().String())
	}
	return out, nil
}

// admin is the relay's HTTP API.
type admin struct{ base string }

// get reads a path. The answer is not compressed, which keeps the relay's cost low.
func (a admin) get(ctx context.Context, path string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.base+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept-Encoding", "identity")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("%s: %s", path, resp.Status)
	}
	return resp.Body, nil
}

// readyMost bounds the start of the relay.
const readyMost = 10 * time.Second

func (a admin) ready(ctx context.Context, proc *child) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyMost, fmt.Errorf("not ready after %s", readyMost))
	defer cancel()
	for {
		body, err := a.get(ctx, "/ready")
		if err == nil {
			return body.Close()
		}
		select {
		case <-proc.done:
			return proc.failed(errEnded)
		case <-ctx.Done():
			return proc.failed(errors.Join(context.Cause(ctx), err))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// heap reads the runtime's gauges.
func (a admin) heap(ctx context.Context) (heap, error) {
	v, err := a.sums(ctx, "go_memstats_heap_alloc_bytes", "go_memstats_stack_inuse_bytes", "go_memstats_heap_sys_bytes", "go_memstats_heap_released_bytes")
	if err != nil {
		return heap{}, err
	}
	return heap{Used: v[0], Stacks: v[1], Free: v[2] - v[3] - v[0]}, nil
}

// collect makes the relay collect its garbage: a request for a heap profile does.
func (a admin) collect(ctx context.Context) error {
	body, err := a.get(ctx, "/debug/pprof/heap?gc=1")
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, body)
	return errors.Join(err, body.Close())
}

// allocated reads the runtime's counter from the metrics.
func (a admin) allocated(ctx context.Context) (uint64, error) {
	values, err := a.sums(ctx, "go_memstats_alloc_bytes_total")
	if err != nil {
		return 0, err
	}
	return uint64(values[0]), nil
}

// sums returns the values of metrics, each summed over all its labels, or of a name with its
// labels.
func (a admin) sums(ctx context.Context, names ...string) ([]float64, error) {
	body, err := a.get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	defer body.Close()
	lines := bufio.NewScanner(body)
	values, found := make([]float64, len(names)), make([]bool, len(names))
	for lines.Scan() {
		metric, text, _ := strings.Cut(lines.Text(), " ")
		name, _, _ := strings.Cut(metric, "{")
		i := slices.Index(names, name)
		if i < 0 {
			i = slices.Index(names, metric)
		}
		if i < 0 {
			continue
		}
		if at := strings.LastIndexByte(text, ' '); at >= 0 {
			text = text[at+1:] // the label's value has a space
		}
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("/metrics: %s: %w", name, err)
		}
		values[i] += value
		found[i] = true
	}
	if i := slices.Index(found, false); i >= 0 {
		return nil, fmt.Errorf("/metrics has no %s", names[i])
	}
	return values, lines.Err()
}
