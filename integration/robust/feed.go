//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"xdsrelay/integration/robust/check"
	"xdsrelay/internal/xdstest"
)

// origin is an origin of the run: a process with the catalog's content. It is restarted after a
// kill.
type origin struct {
	name    string
	catalog *catalog
	history *check.Writer
	log     io.Writer
	proxies []*xdstest.Proxy // from the relays to it

	// said is the content that the history has, by key, type and name. It belongs to start, and
	// then to the feed, of which there is one at a time.
	said map[[3]string]string
	upto map[string]int // by key: the event of the last publication

	mu   sync.Mutex
	proc *xdstest.Process // nil: killed
	feed *feed
	has  map[string]int // by key: the revision that the process has confirmed
}

// feed sends changes to one process.
type feed struct {
	in   io.WriteCloser
	out  *bufio.Reader
	done chan struct{}
	err  error // valid once done is closed
}

// start starts the process, sends it the whole catalog and makes it listen. Then it sends changes
// until the process is killed.
func (o *origin) start(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), originRole+"="+o.name)
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	// Not StdoutPipe: Wait would close it under the reader.
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.Stdout = w
	p, err := xdstest.LaunchProcess(o.name, child(cmd), func(line string) { _, _ = fmt.Fprintln(o.log, line) }) // its output
	_ = w.Close()                                                                                               // the child has its own copy
	if err != nil {
		_ = r.Close()
		return err
	}
	f := &feed{in: in, out: bufio.NewReader(r), done: make(chan struct{})}
	o.mu.Lock()
	o.has = make(map[string]int)
	o.mu.Unlock()
	for key, newer := o.lacks(); newer && err == nil; key, newer = o.lacks() {
		err = o.tell(f, key)
	}
	var hello originReply
	if err == nil {
		hello, err = f.ask(originCommand{Listen: true})
	}
	if err != nil {
		p.Kill()
		_ = r.Close()
		return fmt.Errorf("%s: %w", o.name, err)
	}
	o.mu.Lock()
	o.proc, o.feed = p, f
	o.mu.Unlock()
	for _, k := range o.proxies {
		k.SetTarget(hello.Address)
	}
	go func() {
		defer close(f.done)
		defer func() { _ = r.Close() }() // the pipe was only read
		f.err = o.keep(ctx, f, p)
	}()
	return nil
}

// keep sends each change to the process, until the process or ctx ends.
func (o *origin) keep(ctx context.Context, f *feed, p *xdstest.Process) error {
	for {
		changed := o.catalog.waiting()
		if key, newer := o.lacks(); newer {
			if err := o.tell(f, key); err != nil {
				return err
			}
			continue
		}
		select {
		case <-changed:
		case <-p.Exited():
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// tell makes the process publish the content of a key.
func (o *origin) tell(f *feed, key string) error {
	s := o.catalog.of(key, o.name)
	for _, kind := range kinds {
		if news := o.news(key, kind, s.contents(kind)); len(news) > 0 {
			o.upto[key] = o.history.Add(check.Event{What: check.Publish, Origin: o.name, Key: key, Type: kind, Resources: news})
		}
	}
	if _, err := f.ask(originCommand{Snapshot: &s}); err != nil {
		return err
	}
	o.history.Add(check.Event{What: check.Published, Origin: o.name, Key: key, Upto: o.upto[key]})
	o.mu.Lock()
	o.has[key] = s.Rev
	o.mu.Unlock()
	return nil
}

// news returns the difference to the content in the history.
func (o *origin) news(key, kind string, now map[string]string) map[string]string {
	news := make(map[string]string)
	for name, content := range now {
		if id := [3]string{key, kind, name}; o.said[id] != content {
			o.said[id], news[name] = content, content
		}
	}
	for id := range o.said {
		if _, there := now[id[2]]; !there && id[0] == key && id[1] == kind {
			delete(o.said, id)
			news[id[2]] = ""
		}
	}
	return news
}

// lacks returns a key for which the process lacks changes.
func (o *origin) lacks() (string, bool) {
	o.mu.Lock()
	has := maps.Clone(o.has)
	o.mu.Unlock()
	return o.catalog.newer(has)
}

// ask waits for the process's answer. A stopped process may take long.
func (f *feed) ask(cmd originCommand) (originReply, error) {
	line, err := json.Marshal(cmd)
	if err != nil {
		return originReply{}, err
	}
	if _, err := f.in.Write(append(line, '\n')); err != nil {
		return originReply{}, err
	}
	text, err := f.out.ReadBytes('\n')
	if err != nil {
		return originReply{}, err
	}
	var h originReply
	if err := json.Unmarshal(text, &h); err != nil {
		return originReply{}, err
	}
	if h.Error != "" {
		return originReply{}, errors.New(h.Error)
	}
	return h, nil
}

// kill ends the process with SIGKILL.
func (o *origin) kill() {
	o.mu.Lock()
	p, f := o.proc, o.feed
	o.proc = nil
	o.mu.Unlock()
	if p == nil {
		return
	}
	p.Kill()
	<-f.done
	for _, k := range o.proxies {
		k.SetTarget("")
	}
}

func (o *origin) signal(s syscall.Signal) {
	o.mu.Lock()
	p := o.proc
	o.mu.Unlock()
	if p != nil {
		p.Signal(s)
	}
}

// current reports whether the process has everything. It returns an error if the process ended by
// itself.
func (o *origin) current() (bool, error) {
	o.mu.Lock()
	p, f := o.proc, o.feed
	o.mu.Unlock()
	if p == nil {
		return false, nil
	}
	select {
	case <-p.Exited():
		return false, fmt.Errorf("%s ended: %w", o.name, p.Err())
	case <-f.done:
		return false, fmt.Errorf("%s: %w", o.name, f.err)
	default:
	}
	_, lacks := o.lacks()
	return !lacks, nil
}
