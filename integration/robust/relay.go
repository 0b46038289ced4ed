//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"gopkg.in/yaml.v3"

	"xdsrelay/integration/robust/check"
)

// relay is one of the run's: the built binary, started again after it was killed.
type relay struct {
	name    string
	binary  string
	dir     string
	variant string   // upstream
	origins []string // addresses of the links to them, in order
	more    map[string]any
	history *check.Writer
	log     io.Writer

	mu    sync.Mutex
	links []*link // of the clients to it
	rough bool    // a fault is in force that touches all of them
	life  int
	proc  *proc // nil: killed
	addr  string
	admin string
	told  *bool // this life, to end
}

// config is the relay's file. Its name has its life in it: so each response says
// which process it is from.
func (r *relay) config() ([]byte, error) {
	var origins []map[string]any
	for i, a := range r.origins {
		origins = append(origins, map[string]any{"address": a, "name": originNames[i]})
	}
	all := map[string]any{
		"name": fmt.Sprintf("%s#%d", r.name, r.life),
		"downstream": map[string]any{
			"address": "127.0.0.1:0", "removal_delay": "300ms", "ack_timeout": "3s", "max_connection_age": "0s", "drain": "1s"},
		"admin": map[string]any{"address": "127.0.0.1:0"},
		"upstream": map[string]any{
			"origins": origins, "variant": r.variant, "linger": "300ms", "first_answer_timeout": "20s",
			// Longer than any origin is silent: the relay would take unanswered names for
			// nonexistent.
			"absent_after": "20s",
			"backoff":      map[string]any{"base": "20ms", "max": "500ms"},
			"keepalive":    map[string]any{"time": "10s", "timeout": "2s"},
		},
	}
	for key, section := range r.more {
		if old, ok := all[key].(map[string]any); ok {
			for k, v := range section.(map[string]any) {
				old[k] = v
			}
			continue
		}
		all[key] = section
	}
	return yaml.Marshal(all)
}

var serving = regexp.MustCompile(`msg=serving .*?downstream=(\S+) admin=(\S+)`)

// startMost is how long a relay may take to start on a machine that is busy.
const startMost = time.Minute

// start starts the next life, and waits until it is ready.
func (r *relay) start(ctx context.Context) error {
	r.mu.Lock()
	r.life++
	life := r.life
	text, err := r.config()
	told := new(bool) // of this life: the next may begin before its end is seen
	r.told = told
	r.mu.Unlock()
	if err != nil {
		return err
	}
	file := filepath.Join(r.dir, r.name+".yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	addresses := make(chan []string, 1)
	r.history.Add(check.Event{What: check.Began, Relay: r.name, Process: life, Store: r.more["store"] != nil})
	cmd := exec.Command(r.binary, "serve", "--config", file)
	cmd.Env = append(os.Environ(), "GORACE=halt_on_error=1 exitcode=66")
	p, err := run(r.name, cmd, r.log, func(line string) {
		if m := serving.FindStringSubmatch(line); m != nil {
			select {
			case addresses <- m[1:]:
			default:
			}
		}
	})
	if err != nil {
		return err
	}
	go func() {
		<-p.done
		r.mu.Lock()
		was := *told
		r.mu.Unlock()
		e := check.Event{What: check.Ended, Relay: r.name, Process: life}
		if !was {
			e.Error = fmt.Sprint(p.err)
		}
		r.history.Add(e)
	}()
	timer := time.NewTimer(startMost)
	defer timer.Stop()
	select {
	case a := <-addresses:
		r.mu.Lock()
		r.proc, r.addr, r.admin = p, a[0], a[1]
		links := r.links
		r.mu.Unlock()
		for _, k := range links {
			k.lead(a[0])
		}
		return nil
	case <-p.done:
		return fmt.Errorf("%s ended at its start: %v; see its log", r.name, p.err)
	case <-timer.C:
		r.end(p)
		return fmt.Errorf("%s did not start in %s", r.name, startMost)
	case <-ctx.Done():
		r.end(p)
		return ctx.Err()
	}
}

func (r *relay) end(p *proc) {
	r.mu.Lock()
	*r.told = true
	r.mu.Unlock()
	p.kill()
}

// kill ends the process as kill -9 does.
func (r *relay) kill() {
	r.mu.Lock()
	p := r.proc
	r.proc, *r.told = nil, true
	links := r.links
	r.mu.Unlock()
	if p == nil {
		return
	}
	p.kill()
	for _, k := range links {
		k.lead("")
	}
}

// stop ends it as operators do; it has to exit 0.
func (r *relay) stop() error {
	r.mu.Lock()
	p := r.proc
	r.proc, *r.told = nil, true
	r.mu.Unlock()
	if p == nil {
		return nil
	}
	p.signal(syscall.SIGCONT)
	p.signal(syscall.SIGTERM)
	timer := time.NewTimer(startMost)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		p.signal(syscall.SIGQUIT) // its goroutines, for the log
		p.kill()
		return fmt.Errorf("%s did not end in %s after SIGTERM", r.name, startMost)
	}
	if p.err != nil {
		return fmt.Errorf("%s: exit after SIGTERM: %w", r.name, p.err)
	}
	return nil
}

func (r *relay) signal(s syscall.Signal) {
	r.mu.Lock()
	p := r.proc
	r.mu.Unlock()
	if p != nil {
		p.signal(s)
	}
}

// join makes a link lead to the relay, wherever it is.
func (r *relay) join(k *link) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.links = append(r.links, k)
	if r.proc != nil {
		k.lead(r.addr)
	}
	if r.rough {
		k.begin(func() {})
	}
}

// part is told of a link that is closed.
func (r *relay) part(k *link) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.links = slices.DeleteFunc(slices.Clone(r.links), func(o *link) bool { return o == k })
}

// touch begins, or ends, a fault that touches all clients' connections to it.
func (r *relay) touch(rough bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rough = rough
	for _, k := range r.links {
		if rough {
			k.begin(func() {})
		} else {
			k.end(func() {})
		}
	}
}

// get reads a path of its admin address.
func (r *relay) get(ctx context.Context, path string) (string, error) {
	r.mu.Lock()
	url := "http://" + r.admin + path
	r.mu.Unlock()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close() // read to its end, or failed
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, resp.Status, strings.TrimSpace(string(body)))
	}
	return string(body), err
}

// stored reports whether each client has acknowledged what it was sent, and nothing
// waits to be stored.
func (r *relay) stored(ctx context.Context) (bool, error) {
	for token, more := "", true; more; more = token != "" {
		text, err := r.get(ctx, "/clients?page_token="+url.QueryEscape(token))
		if err != nil {
			return false, err
		}
		var page struct {
			Items []struct {
				Types []struct {
					State string `json:"state"`
				} `json:"types"`
			} `json:"items"`
			Next string `json:"next_page_token"`
		}
		if err := json.Unmarshal([]byte(text), &page); err != nil {
			return false, fmt.Errorf("/clients: %w", err)
		}
		for _, c := range page.Items {
			for _, t := range c.Types {
				if t.State == "STALE" {
					return false, nil
				}
			}
		}
		token = page.Next
	}
	text, err := r.get(ctx, "/metrics")
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, "xdsrelay_store_unwritten_age_seconds "); ok {
			return strings.TrimSpace(value) == "0", nil
		}
	}
	return false, errors.New("/metrics does not say what is not stored yet")
}
