//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"xdsrelay/integration/robust/check"
	"xdsrelay/internal/xdstest"
)

// relay is a relay of the run: the built binary. It is restarted after a kill.
type relay struct {
	name    string
	binary  string
	dir     string
	variant string // the upstream variant
	config  xdstest.Config
	history *check.Writer
	log     io.Writer

	mu      sync.Mutex
	proxies []*xdstest.Proxy // from the clients to it
	rough   bool             // a fault is active that touches all of them
	number  int              // of the newest process, from 1
	proc    *xdstest.Relay   // nil: killed
	told    *bool            // whether this process was told to end
}

// configOf is the configuration of a relay with proxies to its origins.
func configOf(variant string, proxies []*xdstest.Proxy, more xdstest.Config) xdstest.Config {
	var origins []map[string]any
	for i, k := range proxies {
		origins = append(origins, map[string]any{"address": k.Address, "name": originNames[i]})
	}
	return xdstest.QuickConfig().With(xdstest.Config{
		"downstream.removal_delay": "300ms", "downstream.ack_timeout": "3s", "downstream.max_connection_age": "0s", "downstream.drain": "1s",
		"upstream.origins": origins, "upstream.variant": variant, "upstream.linger": "300ms", "upstream.first_answer_timeout": "20s",
		"upstream.backoff":   map[string]any{"base": "20ms", "max": "500ms"},
		"upstream.keepalive": map[string]any{"time": "10s", "timeout": "2s"},
	}).With(more)
}

func (r *relay) stores() bool { return r.config["store.path"] != nil }

// start starts the next process, and waits until it is ready.
func (r *relay) start() error {
	r.mu.Lock()
	r.number++
	number := r.number
	told := new(bool) // of this process, because the next may begin before its end is seen
	r.told = told
	r.mu.Unlock()
	// Each response carries this name, which identifies the process.
	text := r.config.With(xdstest.Config{"name": fmt.Sprintf("%s#%d", r.name, number)}).Text()
	file := filepath.Join(r.dir, r.name+".yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	r.history.Add(check.Event{What: check.Began, Relay: r.name, Process: number, Store: r.stores()})
	cmd := exec.Command(r.binary, "serve", "--config", file)
	cmd.Env = append(os.Environ(), "GORACE=halt_on_error=1 exitcode=66")
	p, err := xdstest.LaunchRelay(child(cmd), func(line string) { _, _ = fmt.Fprintln(r.log, line) }) // its output
	if err != nil {
		return fmt.Errorf("%s: %w", r.name, err)
	}
	go func() {
		<-p.Exited()
		r.mu.Lock()
		was := *told
		r.mu.Unlock()
		e := check.Event{What: check.Ended, Relay: r.name, Process: number}
		if !was {
			e.Error = fmt.Sprint(p.Err())
		}
		r.history.Add(e)
	}()
	r.mu.Lock()
	r.proc = p
	proxies := r.proxies
	r.mu.Unlock()
	for _, k := range proxies {
		k.SetTarget(p.Address)
	}
	return nil
}

// child makes a process end with this one.
func child(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// ends returns the process that is about to be ended, if there is one.
func (r *relay) ends() *xdstest.Relay {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.proc
	r.proc, *r.told = nil, true
	return p
}

// kill ends the process with SIGKILL.
func (r *relay) kill() {
	p := r.ends()
	if p == nil {
		return
	}
	p.Kill()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range r.proxies {
		k.SetTarget("")
	}
}

// stop ends the process with SIGTERM. It has to exit 0.
func (r *relay) stop() error {
	p := r.ends()
	if p == nil {
		return nil
	}
	p.Signal(syscall.SIGCONT)
	return p.Terminate()
}

func (r *relay) signal(s syscall.Signal) {
	if p := r.process(); p != nil {
		p.Signal(s)
	}
}

func (r *relay) process() *xdstest.Relay {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.proc
}

// join connects a proxy to the relay's current address.
func (r *relay) join(k *xdstest.Proxy) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.proxies = append(r.proxies, k)
	if r.proc != nil {
		k.SetTarget(r.proc.Address)
	}
	if r.rough {
		k.FaultBehind(true)
	}
}

// part removes a closed proxy.
func (r *relay) part(k *xdstest.Proxy) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.proxies = slices.DeleteFunc(slices.Clone(r.proxies), func(o *xdstest.Proxy) bool { return o == k })
}

// touch begins or ends a fault that touches all connections from clients.
func (r *relay) touch(rough bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rough = rough
	for _, k := range r.proxies {
		k.FaultBehind(rough)
	}
}

// stored reports whether each client has acknowledged what it received, and the relay has stored
// it.
func (r *relay) stored() (bool, error) {
	p := r.process()
	type client struct {
		Types []struct {
			State string `json:"state"`
		} `json:"types"`
	}
	clients, err := xdstest.List[client](p, "/clients")
	if err != nil {
		return false, err
	}
	for _, c := range clients {
		for _, t := range c.Types {
			if t.State == "STALE" {
				return false, nil
			}
		}
	}
	metrics, err := p.Metrics()
	if err != nil {
		return false, err
	}
	age := metrics["xdsrelay_store_unwritten_age_seconds"].GetMetric()
	if len(age) != 1 {
		return false, errors.New("/metrics lacks the number of pending writes to the store")
	}
	return age[0].GetGauge().GetValue() == 0, nil
}
