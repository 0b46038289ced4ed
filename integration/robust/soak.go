//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// Sizes of a soak.
const (
	soakKeys    = 40
	soakClients = 48 // connected at the same time, at most
	// soakNodes are reused. The relay remembers the keys of thousands of nodes; with more nodes it
	// would have more of them at the end than at the first rest.
	soakNodes  = 400
	soakMoment = 8 * time.Second
	// restart is how often, on average, an origin is killed.
	restart = 15 * time.Second
	// emptyMost bounds the time until the relay is empty.
	emptyMost = time.Minute
)

// Allowed growth from the first churn, a tenth of the run, to the end. Caches are full after the
// first churn.
const (
	moreGoroutines = 16 // a connection to an origin has some, and two or three stay open
	moreFiles      = 4
	moreHeap       = 2 << 20 // and a tenth
	moreResident   = 8 << 20 // and a fifth
)

// weight is a relay's use of each resource. resident excludes free memory that the Go runtime
// keeps.
type weight struct {
	goroutines, files, heap, resident float64
	streams, keys, upstream           float64
}

var soaked = []string{"go_goroutines", "process_open_fds", "go_memstats_heap_alloc_bytes", "process_resident_memory_bytes",
	"xdsrelay_downstream_streams", "xdsrelay_keys", "xdsrelay_upstream_streams", "go_memstats_heap_idle_bytes", "go_memstats_heap_released_bytes"}

// weigh reads the relay's metrics.
func (r *relay) weigh() (weight, error) {
	text, err := r.process().Get("/metrics")
	if err != nil {
		return weight{}, err
	}
	sums := make(map[string]float64)
	for line := range strings.Lines(string(text)) {
		metric, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		name, _, _ := strings.Cut(metric, "{")
		if v, err := strconv.ParseFloat(value[strings.LastIndexByte(value, ' ')+1:], 64); err == nil && name != "#" {
			sums[name] += v
		}
	}
	for _, name := range soaked {
		if _, ok := sums[name]; !ok {
			return weight{}, fmt.Errorf("/metrics has no %s", name)
		}
	}
	return weight{sums[soaked[0]], sums[soaked[1]], sums[soaked[2]], sums[soaked[3]] - (sums[soaked[7]] - sums[soaked[8]]), sums[soaked[4]], sums[soaked[5]], sums[soaked[6]]}, nil
}

func (w weight) row(out io.Writer, at time.Duration, name string, clients, restarts int64) {
	const mb = 1 << 20
	_, _ = fmt.Fprintf(out, "%8s%8d%9d%9.0f%6.0f%10.0f%12.0f%6.0f%9.1f%8.1f  %s\n", at.Round(time.Second), clients, restarts,
		w.streams, w.keys, w.upstream, w.goroutines, w.files, w.heap/mb, w.resident/mb, name) // a table
}

// beyond lists the values that grew more than allowed.
func (w weight) beyond(began weight) error {
	var errs []error
	more := func(what string, is, was, most float64) {
		if is > most {
			errs = append(errs, fmt.Errorf("%s: %.0f, at first %.0f: at most %.0f are allowed", what, is, was, most))
		}
	}
	more("goroutines", w.goroutines, began.goroutines, began.goroutines+moreGoroutines)
	more("descriptors", w.files, began.files, began.files+moreFiles)
	more("bytes of heap", w.heap, began.heap, began.heap*1.1+moreHeap)
	more("bytes resident", w.resident, began.resident, began.resident*1.2+moreResident)
	return errors.Join(errs...)
}

// soak lets clients, their keys and origins come and go. It compares the relay's resources at the
// end with those after the first tenth.
func soak(ctx context.Context, set settings) error {
	set.quiet, set.keys = true, soakKeys
	set.scale = scale{relays: 1, origins: 2}
	set.more = xdstest.Config{"upstream.idle_ttl": "2s"}
	set.dir = filepath.Join(set.dir, fmt.Sprintf("soak-%d", set.seed))
	s, err := prepare(ctx, set)
	if err == nil {
		err = s.soak()
	}
	return s.over(errors.Join(err, s.close()))
}

// crowd is the churn of a soak.
type crowd struct {
	*environment
	came     atomic.Int64
	restarts atomic.Int64
}

func (s *environment) soak() error {
	_, _ = fmt.Fprintf(s.out, "%8s%8s%9s%9s%6s%10s%12s%6s%9s%8s\n", "time", "clients", "restarts", "streams", "keys", "upstream",
		"goroutines", "files", "heap MB", "RSS MB") // progress output
	began := time.Now()
	c := &crowd{environment: s}
	show := func(name string) error {
		w, err := s.relays[0].weigh()
		if err == nil {
			w.row(s.out, time.Since(began), name, c.came.Load(), c.restarts.Load())
		}
		return err
	}
	if err := show("fresh"); err != nil {
		return err
	}
	var first, last weight
	rng := rand.New(rand.NewPCG(s.seed, 3))
	for part, name := range []string{"first rest", "last rest"} {
		lasts := s.last / 10
		if part == 1 {
			lasts = s.last - lasts
		}
		err := c.churn(lasts, rand.New(rand.NewPCG(rng.Uint64(), 0)), func() error { return show("") })
		if err != nil {
			return err
		}
		if last, err = c.empty(); err != nil {
			return err
		}
		if part == 0 {
			first = last
		}
		if err := show(name); err != nil {
			return err
		}
	}
	return last.beyond(first)
}

// churn lets clients come and go, and origins change and restart. It prints the state twenty times.
func (c *crowd) churn(lasts time.Duration, rng *rand.Rand, show func() error) error {
	ctx, cancel := context.WithTimeout(c.ctx, lasts)
	defer cancel()
	var wg sync.WaitGroup
	errs := make(chan error, soakClients+1)
	for i := range soakClients {
		own := rand.New(rand.NewPCG(rng.Uint64(), uint64(i)))
		wg.Go(func() {
			if err := c.come(ctx, own); err != nil {
				errs <- err
				cancel()
			}
		})
	}
	changes, faults := rand.New(rand.NewPCG(rng.Uint64(), 1)), rand.New(rand.NewPCG(rng.Uint64(), 2))
	wg.Go(func() { c.change(ctx, changes) })
	wg.Go(func() {
		for sleep(ctx, restart/2+time.Duration(faults.Int64N(int64(restart)))) {
			o := pick(faults, c.origins)
			o.kill()
			sleep(ctx, time.Duration(faults.Int64N(int64(2*time.Second))))
			if err := o.start(c.ctx); err != nil {
				errs <- err
				cancel()
				return
			}
			c.restarts.Add(1)
		}
	})
	for sleep(ctx, max(lasts/20, time.Second)) {
		if err := show(); err != nil {
			errs <- err
			cancel()
		}
	}
	wg.Wait()
	close(errs)
	var all error
	for err := range errs {
		all = errors.Join(all, err)
	}
	return errors.Join(all, c.ctx.Err())
}

// come starts one client after the other, each of any key and role. A client rejects resources,
// changes its subscription, and leaves.
func (c *crowd) come(ctx context.Context, rng *rand.Rand) error {
	all := roles()
	for sleep(ctx, time.Duration(rng.Int64N(int64(soakMoment/4)))) {
		n := c.came.Add(1) % soakNodes
		node := rand.New(rand.NewPCG(c.seed, uint64(n)))
		r := pick(node, all)
		cl, err := newClient(r, pick(node, c.keys), int(n), 0, c.relays, c.history)
		if err != nil {
			return err
		}
		if rng.IntN(4) == 0 {
			cl.rejects = true
		}
		cl.run(c.ctx)
		for range 3 {
			sleep(ctx, time.Duration(rng.Int64N(int64(soakMoment/3))))
			if r.name == "names" {
				cl.SetNames(xds.EndpointType, fmt.Sprint("cluster-", rng.IntN(maxClusters)), fmt.Sprint("nothing-", n))
			}
			if rng.IntN(3) == 0 {
				cl.Reconnect(fleet.Memory(rng.IntN(2)))
			}
		}
		cl.leave()
		if v := cl.Violations(); len(v) > 0 {
			return fmt.Errorf("client %s saw the relay break the protocol: %q", cl.name, v)
		}
	}
	return nil
}

// empty waits until no clients and keys are left. It collects garbage twice, because pools survive
// one collection, and returns the relay's resources.
func (c *crowd) empty() (weight, error) {
	ctx, cancel := context.WithTimeout(c.ctx, emptyMost)
	defer cancel()
	r := c.relays[0]
	for {
		w, err := r.weigh()
		if err == nil && w.streams+w.keys+w.upstream == 0 {
			break
		}
		if !sleep(ctx, 200*time.Millisecond) {
			return w, errors.Join(fmt.Errorf("%.0f streams, %.0f keys and %.0f upstream streams are left after %s", w.streams, w.keys, w.upstream, emptyMost), err)
		}
	}
	for range 2 {
		if _, err := r.process().Get("/debug/pprof/heap?gc=1"); err != nil {
			return weight{}, err
		}
	}
	return r.weigh()
}
