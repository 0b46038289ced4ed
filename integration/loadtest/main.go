//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == roleArg {
		os.Exit(asChild(os.Args[2:]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	what := parent
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "ghz" {
		what, args = byGHZ, args[1:]
	}
	err := what(ctx, args)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "loadtest:", err)
		os.Exit(1)
	}
}

// parent is the run that a user starts.
func parent(ctx context.Context, args []string) error {
	o := &options{busy: 5, rest: restRelay, log: func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }}
	flags := flag.NewFlagSet("loadtest", flag.ContinueOnError)
	flags.IntVar(&o.load.Clients, "clients", 2000, "connected clients of each server, a connection each")
	flags.IntVar(&o.load.Bytes, "bytes", 100_000, "size of a response")
	flags.IntVar(&o.rounds, "rounds", 5, "measured rounds; three times as many of sotw-1k, sotw-10k and sotw-100k")
	chosen := flags.String("case", "", "instead of -clients and -bytes: "+caseNames()+", or all")
	secure := flags.Bool("tls", false, "over TLS; with -case, as the case says")
	plots := flags.String("plots", "", "directory: draw each case there as SVG")
	only := flags.String("only", "", "run only these, with commas between: "+names())
	flags.StringVar(&o.relay, "relay", "", "the relay's binary (default: build it)")
	flags.StringVar(&o.profile, "profile", "", "directory: afterwards write there CPU and heap profiles of each server, and the top of them in text")
	file := flags.String("json", "", "file: write everything that was measured there too")
	timeout := flags.Duration("timeout", 0, "for all (default: 20 minutes, or 3 for each case if that is more)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	list := []loadCase{{load: o.load, tls: *secure}}
	if *chosen != "" {
		var err error
		if list, err = pickCases(*chosen); err != nil {
			return err
		}
	}
	for _, c := range list {
		o.load = c.load
		if err := o.check(*only); err != nil {
			return err
		}
	}
	if *timeout == 0 {
		*timeout = max(20*time.Minute, time.Duration(len(list))*3*time.Minute)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, *timeout, fmt.Errorf("not done after %s", *timeout))
	defer cancel()
	dir, err := os.MkdirTemp("", "loadtest")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	o.dir = dir
	if err := o.build(ctx, dir); err != nil {
		return err
	}
	var reports []report
	profiles := o.profile
	for _, c := range list {
		if profiles != "" && len(list) > 1 {
			o.profile = filepath.Join(profiles, c.name)
			if err := os.MkdirAll(o.profile, 0o755); err != nil {
				return errors.Join(err, keep(*file, reports))
			}
		}
		r, err := o.measure(ctx, c, append([]string{"go run ./integration/loadtest"}, args...))
		if err != nil {
			return errors.Join(fmt.Errorf("%s: %w", c.name, err), keep(*file, reports))
		}
		reports = append(reports, r)
		if err := r.table(os.Stdout); err != nil {
			return err
		}
		if *plots != "" {
			if err := r.plot(*plots); err != nil {
				return err
			}
		}
	}
	return keep(*file, reports)
}

// measure runs one case.
func (o *options) measure(ctx context.Context, c loadCase, args []string) (report, error) {
	own := *o
	o = &own
	o.load, o.rounds = c.load, o.rounds*max(c.times, 1)
	if c.tls {
		s, err := newSecured(o.dir)
		if err != nil {
			return report{}, err
		}
		o.load.TLS = s
	}
	if c.study != nil {
		s, err := c.study(ctx, o)
		if err != nil {
			return report{}, err
		}
		r := newReport(o, nil, args)
		r.Case, r.Study = c.name, s
		return r, nil
	}
	samples, err := run(ctx, o)
	if err != nil {
		return report{}, err
	}
	r := newReport(o, samples, args)
	r.Case = c.name
	return r, nil
}

// keep writes what was measured to a file, if there is to be one.
func keep(file string, reports []report) error {
	if file == "" || len(reports) == 0 {
		return nil
	}
	text, err := json.MarshalIndent(reports, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

func names() string {
	var out []string
	for _, e := range entries {
		out = append(out, e.name)
	}
	return strings.Join(out, ",")
}

// check says what of the options cannot be.
func (o *options) check(only string) error {
	o.only = nil
	if o.load.Clients < 1 || o.load.Bytes < 1 || o.rounds < 1 {
		return errors.New("-clients, -bytes and -rounds are at least 1")
	}
	if only != "" {
		for name := range strings.SplitSeq(only, ",") {
			if name = strings.TrimSpace(name); !strings.Contains(","+names()+",", ","+name+",") {
				return fmt.Errorf("-only: there is no %q; there are %s", name, names())
			}
			o.only = append(o.only, name)
		}
	}
	// The children inherit it. Go raises the soft limit to the hard one.
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil {
		const others = 100
		if most := files.Max; uint64(o.load.Clients)+others > most {
			return fmt.Errorf("-clients: a process may have %d files open: at most %d clients", most, most-others)
		}
	}
	if o.profile != "" {
		return os.MkdirAll(o.profile, 0o755)
	}
	return nil
}
