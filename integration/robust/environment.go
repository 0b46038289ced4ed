//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"xdsrelay/integration/robust/check"
	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

var originNames = []string{"first", "second"}

// settings are the settings of a run.
type settings struct {
	seed   uint64
	more   xdstest.Config // extra parts of the relays' configuration
	quiet  bool           // write no history
	last   time.Duration
	binary string
	dir    string
	out    io.Writer
	scale  scale
	keys   int
}

// environment is what a run uses: origins, relays and clients.
type environment struct {
	settings
	ctx     context.Context
	history *check.Writer
	file    *os.File
	catalog *catalog
	keys    []string
	origins []*origin
	relays  []*relay
	up      [][]*xdstest.Proxy // by relay and origin
	clients []*client
	roles   []role // by client
	started []int  // likewise: how many clients were started
	logs    []*os.File
}

// upstreamOf are the variants that the relays use with their origins.
var upstreamOf = []string{check.Delta, check.SotW}

// build starts everything: origins, relays, then clients. close ends what it started, even after an
// error.
func build(ctx context.Context, set settings) (*environment, error) {
	s := &environment{settings: set, ctx: ctx}
	var err error
	if s.file, err = os.Create(filepath.Join(set.dir, "history.jsonl")); err != nil {
		return s, err
	}
	s.history = check.NewWriter(s.file, time.Now)
	if set.quiet {
		s.history = check.NewWriter(io.Discard, time.Now)
	}
	for i := range set.keys {
		s.keys = append(s.keys, fmt.Sprint("edge-", i))
	}
	s.catalog = newCatalog(s.keys)
	variants := make(map[string]string)
	for i := range set.scale.relays {
		variants[relayName(i)] = upstreamOf[i%2]
	}
	s.history.Add(check.Event{What: check.Run, Seed: set.seed, Upstream: variants})

	for i := range set.scale.origins {
		log, err := s.log(originNames[i])
		if err != nil {
			return s, err
		}
		o := &origin{name: originNames[i], catalog: s.catalog, history: s.history, log: log,
			said: make(map[[3]string]string), upto: make(map[string]int)}
		s.origins = append(s.origins, o)
		for range set.scale.relays {
			k, err := xdstest.NewProxy("", nil)
			if err != nil {
				return s, err
			}
			o.proxies = append(o.proxies, k)
		}
	}
	for i := range set.scale.relays {
		log, err := s.log(relayName(i))
		if err != nil {
			return s, err
		}
		r := &relay{name: relayName(i), told: new(bool), binary: set.binary, dir: set.dir, variant: upstreamOf[i%2], history: s.history, log: log}
		more := set.more
		if i == 0 && !set.quiet {
			more = xdstest.Config{"store.path": filepath.Join(set.dir, r.name+".store"), "store.interval": "200ms", "store.max_age": "5m"}
		}
		var proxies []*xdstest.Proxy
		for _, o := range s.origins {
			proxies = append(proxies, o.proxies[i])
		}
		r.config = configOf(r.variant, proxies, more)
		s.up = append(s.up, proxies)
		s.relays = append(s.relays, r)
	}
	if err := s.each(len(s.origins), func(i int) error { return s.origins[i].start(ctx) }); err != nil {
		return s, err
	}
	if err := s.each(len(s.relays), func(i int) error { return s.relays[i].start() }); err != nil {
		return s, err
	}
	all := roles()
	for i := range set.scale.clients {
		s.roles = append(s.roles, all[i%len(all)])
		s.started = append(s.started, 0)
		s.clients = append(s.clients, nil)
		if err := s.enter(i); err != nil {
			return s, err
		}
	}
	return s, nil
}

func relayName(i int) string { return "relay-" + string(rune('a'+i)) }

func (s *environment) log(name string) (*os.File, error) {
	f, err := os.Create(filepath.Join(s.dir, name+".log"))
	if err == nil {
		s.logs = append(s.logs, f)
	}
	return f, err
}

// each calls do n times concurrently.
func (s *environment) each(n int, do func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Add(1)
		go func() {
			defer wg.Done()
			errs[i] = do(i)
		}()
	}
	wg.Wait()
	return errors.Join(errs...)
}

// enter starts the client at index i.
func (s *environment) enter(i int) error {
	c, err := newClient(s.roles[i], s.keys[i/len(roles())%len(s.keys)], s.started[i], i+s.started[i], s.relays, s.history)
	if err != nil {
		return err
	}
	s.started[i]++
	s.clients[i] = c
	c.run(s.ctx)
	return nil
}

// close ends everything, clients first. Relays have to exit 0.
func (s *environment) close() error {
	_ = s.each(len(s.clients), func(i int) error {
		if s.clients[i] != nil {
			s.clients[i].leave()
		}
		return nil
	})
	err := s.each(len(s.relays), func(i int) error { return s.relays[i].stop() })
	for _, o := range s.origins {
		o.kill()
		for _, k := range o.proxies {
			k.Close()
		}
	}
	if s.file != nil {
		err = errors.Join(err, s.history.Flush(), s.file.Close())
	}
	for _, f := range s.logs {
		err = errors.Join(err, f.Close())
	}
	return err
}

// do performs a step.
func (s *environment) do(st step) error {
	s.history.Add(check.Event{What: check.Fault, Text: st.String()})
	switch st.where {
	case atRelay:
		return s.doRelay(st, s.relays[st.a])
	case atOrigin:
		return s.doOrigin(st, s.origins[st.a])
	case upstream:
		applyFault(st, s.up[st.a][st.b])
	case downstream:
		applyFault(st, s.clients[st.a].proxies[st.b])
	case atClient:
		return s.doClient(st)
	}
	return nil
}

func (s *environment) doRelay(st step, r *relay) error {
	switch {
	case st.act == blackout && st.end:
		return s.each(len(s.origins), func(i int) error { return s.origins[i].start(s.ctx) })
	case st.act == relayStop && st.end:
		r.signal(syscall.SIGCONT)
	case st.act == dawn || st.act == relayKill && st.end:
		if err := r.start(); err != nil {
			return err
		}
	case st.act == relayStop:
		r.touch(true)
		r.signal(syscall.SIGSTOP)
		return nil
	default:
		s.history.Add(check.Event{What: check.Ending, Relay: r.name, Process: r.number})
		r.touch(true)
		if st.act == blackout {
			for _, o := range s.origins {
				o.kill()
			}
		}
		r.kill()
		return nil
	}
	r.touch(false)
	return nil
}

func (s *environment) doOrigin(st step, o *origin) error {
	switch {
	case st.act == originKill && !st.end:
		o.kill()
	case st.act == originKill:
		return o.start(s.ctx)
	case !st.end:
		o.signal(syscall.SIGSTOP)
	default:
		o.signal(syscall.SIGCONT)
	}
	return nil
}

// applyFault performs a step on a proxy. A proxy has one fault at a time.
func applyFault(st step, k *xdstest.Proxy) {
	switch {
	case st.act == cut:
		k.Cut()
	case st.end:
		if st.act == halfOpen {
			k.Cut()
		}
		k.SetFault(xdstest.Fault{})
		k.Resume()
	case st.act == stall, st.act == halfOpen:
		k.Hang()
	case st.act == delay:
		k.SetFault(xdstest.Fault{Delay: time.Duration(st.size)})
	case st.act == throttle:
		k.SetFault(xdstest.Fault{Rate: int(st.size)})
	case st.act == reject:
		k.SetFault(xdstest.Fault{Reject: true})
	}
}

func (s *environment) doClient(st step) error {
	c := s.clients[st.a]
	switch st.act {
	case reconnect:
		c.Reconnect(fleet.KeepVersions)
	case forgetful:
		// In delta, a client that holds a resource but does not list it never learns of its
		// removal.
		if c.variant == check.SotW {
			c.Reconnect(fleet.DropVersions)
		} else {
			c.Reconnect(fleet.KeepVersions)
		}
	case move:
		c.move()
		c.Reconnect(fleet.KeepVersions)
	case replace:
		c.leave()
		return s.enter(st.a)
	case rename:
		if s.roles[st.a].name != "names" {
			break
		}
		rng := rand.New(rand.NewPCG(uint64(st.size), 0))
		for _, typ := range []xds.TypeURL{xds.EndpointType, xds.ClusterType} {
			var names []string
			for n := range maxClusters {
				if rng.IntN(3) == 0 {
					names = append(names, fmt.Sprint("cluster-", n))
				}
			}
			if len(names) > 0 {
				c.SetNames(typ, names...)
			}
		}
	}
	return nil
}
