package main

import (
	"fmt"
	"slices"
	"strings"

	"xdsrelay/internal/fanout/inspect"

	"github.com/spf13/cobra"
)

// statesFlag selects clients whose worst state of a type is one of these; empty: all clients.
type statesFlag []string

func (f *statesFlag) String() string { return strings.Join(*f, " or ") }
func (f *statesFlag) Type() string   { return "states" }

// Set implements pflag.Value. It takes a state as it is shown, in any case, with _ or - for a
// space.
func (f *statesFlag) Set(s string) error {
	for name := range strings.SplitSeq(s, ",") {
		is := strings.ToUpper(strings.NewReplacer("_", " ", "-", " ").Replace(strings.TrimSpace(name)))
		if !slices.Contains(inspect.States, is) {
			return fmt.Errorf("unknown state %q: must be SYNCED, UNCONFIRMED, NOT_SENT, STALE or NACKED", name)
		}
		*f = append(*f, is)
	}
	return nil
}

// completeStates completes --state, also after a comma.
func completeStates(cmd *cobra.Command) {
	completeWith(cmd, "state", func(typed string) (out []string) {
		before := typed[:strings.LastIndexByte(typed, ',')+1]
		var has statesFlag
		_ = has.Set(strings.TrimSuffix(before, ",")) // an unknown state is reported when the command runs
		for _, s := range inspect.States {
			if !slices.Contains(has, s) {
				out = append(out, before+strings.ReplaceAll(s, " ", "_"))
			}
		}
		return out
	})
}
