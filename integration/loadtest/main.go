//go:build linux

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
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
	if err != nil && ctx.Err() != nil && !errors.Is(err, errInterrupted) {
		err = errInterrupted // its error comes from ending it
	}
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "loadtest:", err)
		os.Exit(1)
	}
}

var errInterrupted = errors.New("interrupted")

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
	flags.StringVar(&o.against, "against", "", "the binary of another relay, which takes part as \"other relay\"")
	flags.StringVar(&o.profile, "profile", "", "directory: afterwards write there CPU and heap profiles of each server, and the top of them in text")
	file := flags.String("json", "", "file: write everything that was measured there too")
	timeout := flags.Duration("timeout", 0, "for all (default: 20 minutes, or 3 for each case if that is more)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := noneLeft(flags); err != nil {
		return err
	}
	list := []loadCase{{load: o.load, tls: *secure}}
	if *chosen != "" {
		var err error
		if list, err = pickCases(*chosen); err != nil {
			return err
		}
		flags.Visit(func(f *flag.Flag) {
			if err == nil && slices.Contains([]string{"clients", "bytes", "tls"}, f.Name) {
				err = fmt.Errorf("-%s: not with -case, which sets it itself", f.Name)
			}
		})
		if err != nil {
			return err
		}
	}
	if err := errors.Join(writable("-json", *file), o.directories(*plots)); err != nil {
		return err
	}
	for _, c := range list {
		o.load = c.load
		if err := errors.Join(o.check(*only), o.takesPart(c)); err != nil {
			return err
		}
		if *plots != "" && c.study == nil && !o.wants(nameRaw) {
			o.log("%s is not drawn: ratios to %s are, which -only leaves out", cmp.Or(c.name, "it"), nameRaw)
		}
	}
	if *timeout == 0 {
		*timeout = max(20*time.Minute, time.Duration(len(list))*3*time.Minute)
	}
	user := ctx
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
				return err
			}
		}
		r, err := o.measure(ctx, c, append([]string{"go run ./integration/loadtest"}, args...))
		if err != nil {
			if user.Err() != nil {
				err = errInterrupted
			}
			return within(c.name, err)
		}
		// At once, so that a later failure does not lose it.
		reports = append(reports, r)
		if err := keep(*file, reports); err != nil {
			return err
		}
		if err := r.table(os.Stdout); err != nil {
			return err
		}
		if *plots != "" {
			if err := r.plot(*plots); err != nil {
				return err
			}
		}
	}
	return nil
}

// within adds a name to an error, unless there is none or the error has it.
func within(name string, err error) error {
	if name == "" || strings.HasPrefix(err.Error(), name+": ") {
		return err
	}
	return fmt.Errorf("%s: %w", name, err)
}

// noneLeft rejects arguments that no flag took. Flags after such an argument were not read either.
func noneLeft(flags *flag.FlagSet) error {
	if flags.NArg() == 0 {
		return nil
	}
	return fmt.Errorf("left over: %q; a case is named by -case, and a list has no space after a comma", flags.Args())
}

// writable fails early if a file could not be written after the measurement. An existing file is
// unchanged until then.
func writable(option, file string) error {
	if file == "" {
		return nil
	}
	_, was := os.Stat(file)
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("%s: %w", option, err)
	}
	err = f.Close()
	if errors.Is(was, fs.ErrNotExist) {
		err = errors.Join(err, os.Remove(file))
	}
	return err
}

// directories creates the directories of files to be written.
func (o *options) directories(plots string) error {
	for _, dir := range []string{plots, o.profile} {
		if dir == "" {
			continue
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
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

// keep writes the reports to a file, if one is given.
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

// check rejects impossible options.
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
	// Child processes inherit it. Go raises the soft limit to the hard one.
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil {
		const others = 100
		if most := files.Max; uint64(o.load.connections())+others > most {
			return fmt.Errorf("-clients: a process may have %d files open: at most %d clients", most, (most-others)*uint64(max(o.load.Streams, 1)))
		}
	}
	return nil
}

// takesPart rejects -only if it leaves no contender in a case.
func (o *options) takesPart(c loadCase) error {
	if c.study == nil || slices.ContainsFunc(c.by, o.wants) {
		return nil
	}
	return fmt.Errorf("-only: none of %s takes part in %s, only %s", strings.Join(o.only, ", "), c.name, strings.Join(c.by, ", "))
}
