package main

import (
	"cmp"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"xdsrelay/internal/admin"
	"xdsrelay/internal/admin/compare"
	"xdsrelay/internal/adminclient"
	"xdsrelay/internal/spelling"
	"xdsrelay/internal/status"
	"xdsrelay/internal/terminal"
)

func newDiffCmd() *cobra.Command {
	var (
		flags *runningFlags
		node  string
	)
	cmd := &cobra.Command{
		Use:   "diff NODE",
		Short: "Show what a client rejected or has not acknowledged, as a diff",
		Long: `Show the resources that a client of a running relay rejected or has not acknowledged,
as YAML diffs against the resources that it has. The output has the client's error
message and no secrets.

The relay keeps at most 4 MiB of replaced resources for each type of a key. For older
resources the command prints that the relay no longer has them. "relay nacks --diff"
shows what clients rejected earlier.`,
		Example: `  relay diff sidecar~10.0.0.1~web-0
  relay diff web-0 --admin 127.0.0.1:19000 -o json`,
	}
	format := addOutputFlag(cmd, terminal.FormatText, terminal.FormatJSON, terminal.FormatYAML)
	flags = addRunningFlags(cmd)
	cmd.Flags().StringVarP(&node, "node", "n", "", "id of the node, instead of NODE")
	completeNodes(cmd, flags)
	cmd.ValidArgsFunction = completeFirst(nodeNames(flags))
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		switch given := cmd.Flags().Changed("node"); {
		case given && len(args) > 0:
			return usageErrorf("diff: takes NODE or --node, but has both")
		case !given && len(args) != 1:
			return usageErrorf("diff: needs the id of one node")
		case !given:
			node = args[0]
		}
		return nil
	}
	cmd.RunE = flags.run(func(cmd *cobra.Command, c *adminclient.Client) error {
		all, err := c.List(cmd.Context(), "/diff/"+url.PathEscape(node), nil)
		if err != nil {
			return err
		}
		if *format != terminal.FormatText {
			return terminal.PrintList(cmd.OutOrStdout(), *format, all)
		}
		items, err := adminclient.DecodeItems[admin.Unacknowledged](c, all)
		if err != nil {
			return err
		}
		printUnacknowledged(cmd.OutOrStdout(), node, items, time.Now())
		return nil
	})
	return cmd
}

func printUnacknowledged(w io.Writer, node string, items []admin.Unacknowledged, now time.Time) {
	t := terminal.StyleOf(w)
	if len(items) == 0 {
		fmt.Fprintf(w, "%s has acknowledged all that the relay has for it. Names that do not exist at the origin do not count.\n", terminal.Visible(node))
		return
	}
	for i, u := range items {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if u.NoKey != "" {
			fmt.Fprintf(w, "%s %s has no key and gets no response: reason %s\n", terminal.Visible(node), terminal.ShortType(u.Type), terminal.Visible(u.NoKey))
			continue
		}
		colour := status.Colours[u.State]
		fmt.Fprintf(w, "%s %s under %s: %s for %s\n", terminal.Visible(u.Node), terminal.ShortType(u.Type), terminal.Visible(u.Key), t.Colour(colour, u.State), terminal.Age(now.Sub(u.Since)))
		if len(u.Awaits) > 0 {
			printAwaited(w, u.Awaits, u.More)
			continue
		}
		what, it := "the client has not answered", "it"
		switch {
		case u.Nack != nil:
			what = "the client rejected"
		case u.Unsent:
			what, it = "the relay has not sent", "the client"
		}
		has := "no version"
		if u.AckedVersion != "" {
			has = "version " + terminal.Visible(u.AckedVersion)
		}
		if s := u.Sending; s != nil && u.Nack == nil && !u.Unsent {
			fmt.Fprintf(w, "the relay has been sending version %s for %s; the client has received %s of %s, and has %s\n",
				terminal.Visible(u.Version), terminal.Age(now.Sub(s.Since)), megabytes(s.Received), megabytes(s.Bytes), has)
		} else {
			fmt.Fprintf(w, "%s version %s; %s has %s\n", what, terminal.Visible(u.Version), it, has)
		}
		if u.Nack != nil {
			fmt.Fprintf(w, "%s\n", t.Colour(colour, terminal.OneLine(u.Nack.Message)))
		}
		if u.NotHeld {
			fmt.Fprintln(w, "the relay no longer has the resources of this version")
		}
		printDifferences(w, t, u.Version, u.Resources, u.More)
	}
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }

// printDifferences prints the diffs of resources in a version, and how many more there are.
func printDifferences(w io.Writer, t terminal.Style, version string, all []compare.Difference, more int) {
	for _, r := range all {
		printDifference(w, t, r.Name, version, r.Diff, r.OfferedNotHeld || r.HasNotHeld)
	}
	if more > 0 {
		fmt.Fprintf(w, "and %s\n", spelling.Counted(more, "more resource"))
	}
}

// printAwaited prints the names for which the client waits until the origin answers.
func printAwaited(w io.Writer, names []string, more int) {
	fmt.Fprintln(w, "the origin has not answered these names yet:")
	for _, n := range names {
		fmt.Fprintf(w, "  %s\n", terminal.Visible(n))
	}
	if more > 0 {
		fmt.Fprintf(w, "and %d more\n", more)
	}
}

func printDifference(w io.Writer, t terminal.Style, name, version, diff string, gone bool) {
	name = cmp.Or(name, "the resource without a name")
	if gone {
		fmt.Fprintf(w, "%s: the relay no longer has the replaced resource\n", terminal.Visible(name))
		return
	}
	fmt.Fprintf(w, "--- %s at the client\n+++ %s in version %s\n", terminal.Visible(name), terminal.Visible(name), terminal.Visible(terminal.ShortVersion(version)))
	if diff == "" {
		fmt.Fprintln(w, "no visible field differs")
	}
	terminal.Diff(w, t, diff)
}
