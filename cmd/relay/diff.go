package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"xdsrelay/internal/fanout"
)

func newDiffCmd() *cobra.Command {
	var (
		flags *runningFlags
		node  string
	)
	cmd := &cobra.Command{
		Use:   "diff --node NODE",
		Short: "Show what a client rejected or has not acknowledged, as a diff",
		Long: `Show the resources that a client of a running relay rejected or has not acknowledged,
as YAML diffs against the resources that it has. The output has the client's error
message and no secrets.

The relay keeps at most 4 MB of replaced resources for each type of a key. For older
resources the command prints that the relay no longer has them. "relay nacks --diff"
shows what clients rejected earlier.`,
		Example: `  relay diff --node sidecar~10.0.0.1~web-0
  relay diff --node web-0 --admin 127.0.0.1:19000 -o json`,
		Args: cobra.NoArgs,
	}
	format := addOutputFlag(cmd, formatText, formatJSON, formatYAML)
	flags = addRunningFlags(cmd)
	cmd.Flags().StringVarP(&node, "node", "n", "", "id of the node")
	markRequired(cmd, "node")
	completeNodes(cmd, flags)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := flags.client()
		if err != nil {
			return err
		}
		defer c.close()
		all, err := c.list(commandContext(cmd), "/diff/"+url.PathEscape(node), nil)
		if err != nil {
			return err
		}
		if *format != formatText {
			return printData(cmd.OutOrStdout(), *format, map[string]any{"items": all})
		}
		items := make([]unacknowledged, len(all))
		for i := range all {
			if err := json.Unmarshal(all[i], &items[i]); err != nil {
				return fmt.Errorf("--admin: the answer of %s is not that of a relay: %w", c.base, err)
			}
		}
		printUnacknowledged(cmd.OutOrStdout(), node, items, time.Now())
		return nil
	}
	return cmd
}

// unacknowledged is an item of /diff: a type on a stream with resources that the client has not
// accepted.
type unacknowledged struct {
	Node         string       `json:"node"`
	Stream       uint64       `json:"stream"`
	Key          string       `json:"key"`
	Type         string       `json:"type"`
	State        string       `json:"state"`
	Since        time.Time    `json:"since"`
	Version      string       `json:"version"`
	AckedVersion string       `json:"acked_version"`
	Nack         *fanout.Nack `json:"nack"`
	Unsent       bool         `json:"unsent"`
	NotHeld      bool         `json:"not_held_any_more"`
	Awaits       []string     `json:"awaits"`
	More         int          `json:"more"`
	NoKey        string       `json:"no_key"`

	Resources []resourceDiff `json:"resources"`
}

// resourceDiff is a resource that differs from what the client has or had.
type resourceDiff struct {
	Name           string `json:"name"`
	OfferedNotHeld bool   `json:"offered_not_held_any_more"`
	HasNotHeld     bool   `json:"has_not_held_any_more"`
	Diff           string `json:"diff"`
}

func printUnacknowledged(w io.Writer, node string, items []unacknowledged, now time.Time) {
	t := tintOf(w)
	if len(items) == 0 {
		fmt.Fprintf(w, "%s has no rejected or missing resources\n", plain(node))
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
		fmt.Fprintf(w, "%s version %s; %s has %s\n", what, plain(u.Version), it, has)
		if u.Nack != nil {
			fmt.Fprintf(w, "%s\n", t.as(colour, onOneLine(u.Nack.Message)))
		}
		if u.NotHeld {
			fmt.Fprintln(w, "the relay no longer has the resources of this version")
		}
		printDifferences(w, t, u.Version, u.Resources, u.More)
	}
}

// printDifferences prints the diffs of resources in a version, and how many more there are.
func printDifferences(w io.Writer, t tint, version string, all []resourceDiff, more int) {
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
	if gone {
		fmt.Fprintf(w, "%s: the relay no longer has the replaced resource\n", plain(name))
		return
	}
	fmt.Fprintf(w, "--- %s at the client\n+++ %s in version %s\n", plain(name), plain(name), plain(shortVersion(version)))
	if diff == "" {
		fmt.Fprintln(w, "no visible field differs")
	}
	for line := range strings.Lines(diff) {
		colour := map[byte]string{'+': green, '-': red, '@': faint}[line[0]]
		fmt.Fprintln(w, t.as(colour, plain(strings.TrimSuffix(line, "\n"))))
	}
}
