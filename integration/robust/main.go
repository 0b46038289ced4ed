//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"xdsrelay/integration/robust/check"
)

func main() {
	originMain()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		stop()
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("robust", flag.ContinueOnError)
	seed := flags.Uint64("seed", 0, "of the faults and changes; 0: any")
	last := flags.Duration("for", time.Minute, "how long to play rounds, at least one")
	binary := flags.String("relay", "bin/relay", "the relay")
	dir := flags.String("dir", ".cache/robust", "for histories and logs of runs that fail")
	long := flags.Duration("soak", 0, "instead: churn for so long, and see what the relay is left with")
	again := flags.String("check", "", "only hold this history against the rules")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *again != "" {
		return checkHistory(*again, out)
	}
	if *seed == 0 {
		*seed = rand.Uint64N(1_000_000) + 1
	}
	path, err := filepath.Abs(*binary)
	if err != nil {
		return err
	}
	set := settings{seed: *seed, last: *last, binary: path, dir: *dir, out: out,
		keys: 3, scale: scale{relays: 2, origins: 2, clients: 24, faults: 16, longest: 4 * time.Second}}
	if *long > 0 {
		set.last = *long
		return soak(ctx, set)
	}
	_, err = play(ctx, set)
	return err
}

// play makes a run and checks its history. If anything was wrong its files stay, and it returns
// their directory.
func play(ctx context.Context, set settings) (string, error) {
	set.dir = filepath.Join(set.dir, fmt.Sprintf("seed-%d-%d", set.seed, os.Getpid()))
	s, err := prepare(ctx, set)
	if err == nil {
		err = s.rounds()
	}
	return set.dir, s.over(errors.Join(err, s.close(), checkHistory(filepath.Join(set.dir, "history.jsonl"), set.out)))
}

// prepare creates the directory of a run and starts everything.
func prepare(ctx context.Context, set settings) (*environment, error) {
	if err := os.MkdirAll(set.dir, 0o755); err != nil {
		return &environment{settings: set, ctx: ctx}, err
	}
	_, _ = fmt.Fprintf(set.out, "seed %d\n", set.seed) // progress output
	return build(ctx, set)
}

// over removes the run's files, or reports their directory.
func (s *environment) over(err error) error {
	if err != nil {
		return fmt.Errorf("%w\nseed %d; the files are in %s", err, s.seed, s.dir)
	}
	return os.RemoveAll(s.dir)
}

// most is how many violations are printed.
const most = 20

// checkHistory checks a history against the rules.
func checkHistory(path string, out io.Writer) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // the file was only read
	events, err := check.Read(f)
	if err != nil {
		return err
	}
	counts := make(map[check.What]int)
	for i := range events {
		counts[events[i].What]++
	}
	fmt.Fprintf(out, "%d events: %d publications, %d receipts, %d streams, %d rests\n", len(events), counts[check.Publish],
		counts[check.Receipt], counts[check.Opening], counts[check.Rest])
	var found []check.Violation
	known := 0
	for _, v := range check.Check(events) {
		if v.Known {
			known++
			continue
		}
		found = append(found, v)
	}
	if known > 0 {
		fmt.Fprintf(out, "%d times a client that subscribes by name went back from the wildcard's copy to its own (P50)\n", known)
	}
	for _, v := range found[:min(len(found), most)] {
		fmt.Fprintln(out, v)
	}
	if len(found) > 0 {
		return fmt.Errorf("%d violations", len(found))
	}
	return nil
}
