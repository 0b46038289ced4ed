package main

import (
	"fmt"
	"slices"
	"strings"

	"xdsrelay/internal/fanout/inspect"

	"github.com/spf13/cobra"
)

// statesFlag are states of which a client is in one with any of its types; none: all
// clients.
type statesFlag []string

var allStates = []string{inspect.Synced, inspect.NotSent, inspect.Unanswered, inspect.Refused}

func (f *statesFlag) String() string { return strings.Join(*f, " or ") }
func (f *statesFlag) Type() string   { return "states" }

// Set implements pflag.Value. A state is taken as it is shown, and as one types it.
func (f *statesFlag) Set(s string) error {
	for name := range strings.SplitSeq(s, ",") {
		is := strings.ToUpper(strings.NewReplacer("_", " ", "-", " ").Replace(strings.TrimSpace(name)))
		if !slices.Contains(allStates, is) {
			return fmt.Errorf("%q is no state: wants SYNCED, NOT_SENT, STALE or NACKED", name)
		}
		*f = append(*f, is)
	}
	return nil
}

func (f *statesFlag) has(c *inspect.ClientStatus) bool {
	return len(*f) == 0 || slices.ContainsFunc(c.Types, func(t inspect.TypeStatus) bool { return slices.Contains(*f, t.State) })
}

// completeStates completes --state, behind a comma as well.
func completeStates(cmd *cobra.Command) {
	completeWith(cmd, "state", func(typed string) (out []string) {
		before := typed[:strings.LastIndexByte(typed, ',')+1]
		var has statesFlag
		_ = has.Set(strings.TrimSuffix(before, ",")) // what is none is told when it is used
		for _, s := range allStates {
			if !slices.Contains(has, s) {
				out = append(out, before+strings.ReplaceAll(s, " ", "_"))
			}
		}
		return out
	})
}
