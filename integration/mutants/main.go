package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	parallel := flag.Int("parallel", 2*runtime.NumCPU(), "mutants tried at a time")
	verbose := flag.Bool("v", false, "show what the tests of survivors printed")
	skip := flag.String("skip", "", "tests that are not to notice anything, as 'Model|Against': who survives then is killed by chance")
	flag.Parse()
	survivors, err := try(ctx, ".", flag.Args(), *parallel, *verbose, *skip)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(2)
	}
	if survivors > 0 {
		os.Exit(1)
	}
}

// try applies the mutants of the rules, of all if there are none, to the module
// in root, and returns how many no test noticed.
func try(ctx context.Context, root string, rules []string, parallel int, verbose bool, skip string) (int, error) {
	all, err := load(filepath.Join(root, "integration", "mutants"))
	if err != nil {
		return 0, err
	}
	if len(rules) > 0 {
		all = slices.DeleteFunc(all, func(m *mutant) bool {
			return !slices.ContainsFunc(rules, func(r string) bool { return strings.EqualFold(r, m.rule) })
		})
	}
	if len(all) == 0 {
		return 0, fmt.Errorf("no mutants of %s", strings.Join(rules, ", "))
	}
	var moved []error
	for _, m := range all {
		if _, _, err := m.texts(root); err != nil {
			moved = append(moved, err)
		}
	}
	if err := errors.Join(moved...); err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return 0, fmt.Errorf("mutants: %w", err)
	}
	defer os.RemoveAll(dir)
	b, err := build(ctx, root, dir, all)
	if err != nil {
		return 0, err
	}
	b.skip = skip
	if err := b.sound(ctx, all); err != nil {
		return 0, err
	}
	results := make([]result, len(all))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i, m := range all {
		g.Go(func() error {
			var err error
			results[i], err = b.try(ctx, m)
			if err != nil {
				return err
			}
			fmt.Printf("%-9s %-4s %6.1fs  %s: %s\n", results[i].verdict, m.rule, results[i].took.Seconds(), m.why, results[i].by)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	survivors := 0
	for i, m := range all {
		if v := results[i].verdict; v == killed || v == hangs {
			continue
		}
		survivors++
		fmt.Printf("\n%s: %s: %s\n  %s, %s %s\n", m.place, results[i].verdict, m.why, m.file, m.pkg, m.run)
		if verbose || results[i].verdict == broken {
			fmt.Println(results[i].output)
		}
	}
	fmt.Printf("\n%d mutants, %d survive\n", len(all), survivors)
	return survivors, nil
}

// result of a mutant.
type result struct {
	verdict verdict
	by      string // the first test that noticed it
	output  string
	took    time.Duration
}

type verdict string

const (
	killed   verdict = "killed"
	hangs    verdict = "hangs" // its test ran out of time: noticed, but slowly
	survives verdict = "SURVIVES"
	broken   verdict = "BROKEN" // it does not compile, and proves nothing
)
