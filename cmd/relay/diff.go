package main

import (
	"cmp"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"xdsrelay/internal/admin"
	"xdsrelay/internal/admin/compare"
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
	format := addOutputFlag(cmd, formatText, formatJSON, formatYAML)
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
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := flags.client()
		if err != nil {
			return err
		}
		defer c.close()
		all, err := c.list(cmd.Context(), "/diff/"+url.PathEscape(node), nil)
		if err != nil {
			return err
		}
		if *format != formatText {
			return printData(cmd.OutOrStdout(), *format, envelope{all})
		}
		items, err := decode[admin.Unacknowledged](c, all)
		if err != nil {
			return err
		}
		printUnacknowledged(cmd.OutOrStdout(), node, items, time.Now())
		return nil
	}
	return cmd
}

func printUnacknowledged(w io.Writer, node string, items []admin.Unacknowledged, now time.Time) {
	t := tintOf(w)
	if len(items) == 0 {
		fmt.Fprintf(w, "%s has acknowledged all that the relay has for it. Names that do not exist at the origin do not count.\n", plain(node))
		return
	}
	for i, u := range items {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if u.NoKey != "" {
			fmt.Fprintf(w, "%s %s has no key and gets no response: reason %s\n", plain(node), shortType(u.Type), plain(u.NoKey))
			continue
		}
		colour := stateColours[u.State]
		fmt.Fprintf(w, "%s %s under %s: %s for %s\n", plain(u.Node), shortType(u.Type), plain(u.Key), t.as(colour, u.State), age(now.Sub(u.Since)))
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
			has = "version " + plain(u.AckedVersion)
		}
		if s := u.Sending; s != nil && u.Nack == nil && !u.Unsent {
			fmt.Fprintf(w, "the relay has been sending version %s for %s; the client has received %s of %s, and has %s\n",
				plain(u.Version), age(now.Sub(s.Since)), megabytes(s.Received), megabytes(s.Bytes), has)
		} else {
			fmt.Fprintf(w, "%s version %s; %s has %s\n", what, plain(u.Version), it, has)
		}
		if u.Nack != nil {
			fmt.Fprintf(w, "%s\n", t.as(colour, onOneLine(u.Nack.Message)))
		}
		if u.NotHeld {
			fmt.Fprintln(w, "the relay no longer has the resources of this version")
		}
		printDifferences(w, t, u.Version, u.Resources, u.More)
	}
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }

// printDifferences prints the diffs of resources in a version, and how many more there are.
func printDifferences(w io.Writer, t tint, version string, all []compare.Difference, more int) {
	for _, r := range all {
		printDifference(w, t, r.Name, version, r.Diff, r.OfferedNotHeld || r.HasNotHeld)
	}
	if more > 0 {
		fmt.Fprintf(w, "and %s\n", counted(more, "more resource"))
	}
}

// printAwaited prints the names for which the client waits until the origin answers.
func printAwaited(w io.Writer, names []string, more int) {
	fmt.Fprintln(w, "the origin has not answered these names yet:")
	for _, n := range names {
		fmt.Fprintf(w, "  %s\n", plain(n))
	}
	if more > 0 {
		fmt.Fprintf(w, "and %d more\n", more)
	}
}

func printDifference(w io.Writer, t tint, name, version, diff string, gone bool) {
	name = cmp.Or(name, "the resource without a name")
	if gone {
		fmt.Fprintf(w, "%s: the relay no longer has the replaced resource\n", plain(name))
		return
	}
	fmt.Fprintf(w, "--- %s at the client\n+++ %s in version %s\n", plain(name), plain(name), plain(shortVersion(version)))
	if diff == "" {
		fmt.Fprintln(w, "no visible field differs")
	}
	printDiff(w, t, diff)
}

// printDiff prints the lines of a diff in colours.
func printDiff(w io.Writer, t tint, diff string) {
	for line := range strings.Lines(diff) {
		colour := map[byte]string{'+': green, '-': red, '@': faint}[line[0]]
		fmt.Fprintln(w, t.as(colour, plain(strings.TrimSuffix(line, "\n"))))
	}
}
