package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"xdsrelay/internal/terminal"
	"xdsrelay/internal/wait"
)

func newWaitCmd() *cobra.Command {
	var w wait.Options
	var flags *runningFlags
	cmd := &cobra.Command{
		Use:   "wait --key KEY --type TYPE --version VERSION",
		Short: "Wait until enough clients of a key acknowledged a version",
		Long: `Wait until enough clients of a key acknowledged a version of a type. The version may
still have to come.

A client has the version if it acknowledged it or a later one, or if the version has
no resources for the client. The order of versions is their order in time, not by
name. A client that rejected the version does not have it until it acknowledges a
later response. The command does not wait for names for which the origin has not
answered. A node with several streams of the type counts once. Of its streams with the
same names on several connections, the newest decides.

If another version replaced the version before the wait began, the version counts
only when it comes again, or with --or-newer.

A bad version may crash its clients. Clients that disconnect during the wait therefore
still count, without the version, for the time --settle. If more than --lost percent
of the clients have not come back by then, the wait fails. Set a higher --lost if you
remove or replace clients during the wait.

--members counts the clients of all relays of the cluster. The relay asks the others,
and each has 2 s to answer. While one of them does not answer, the version is not
reached. A relay that died counts as one of them for ten minutes, because it may only be
cut off and still have clients. If you know that it is gone, --ignore-dead 0s ends that.
A relay that left does not count.

Exit codes:
  0  Enough clients have the version.
  1  Error: a wrong flag, a wrong token, or no answer of the relay at all.
  2  Not enough clients have the version when --timeout ends.
  3  The version cannot reach enough clients: too many clients reject it, another
     version replaced it before the wait began, or too many clients stay away.

The wait continues while the relay restarts or cannot be reached, and reads a changed
token file again. After a restart of the relay, a version from before the restart has
to come again.`,
		Example: `  relay wait --key edge --type CDS --version v42 --percent 99 --timeout 5m
  relay wait --key edge --type CDS --version v42 --or-newer -o json
  relay wait --key edge --type CDS --version v42 --members
  relay wait --key edge --type EDS --version v42 --admin 10.0.0.5:19000 --token-file token`,
		Args: noArgs,
	}
	format := addOutputFlag(cmd, terminal.FormatText, terminal.FormatJSON, terminal.FormatYAML)
	flags = addRunningFlags(cmd)
	f := cmd.Flags()
	f.StringVarP(&w.Key, "key", "k", "", "the key, as relay status shows it")
	f.VarP((*typeFlag)(&w.Type), "type", "t", "the resource type, a short name such as CDS or a URL")
	f.StringVar(&w.Version, "version", "", "the version that the origin gave, or that the relay made from the content")
	f.Float64Var(&w.Percent, "percent", 100, "share of the clients that must have the version, in percent")
	f.IntVar(&w.Clients, "clients", 1, "least number of clients")
	f.BoolVar(&w.AllMembers, "members", false, "count the clients of all relays of the cluster")
	addIgnoreDeadFlag(cmd, &w.IgnoreDead)
	f.BoolVar(&w.Newer, "or-newer", false, "accept the version even if another one replaced it before the wait began")
	f.DurationVar(&w.Settle, "settle", wait.Settle, "time in which disconnected clients can come back")
	f.Float64Var(&w.Lost, "lost", 10, "share of the clients that may stay away, in percent")
	f.DurationVar(&w.Timeout, "timeout", 5*time.Minute, "longest time to wait")
	f.DurationVar(&w.Every, "every", time.Second, "time between two requests to the relay")
	markRequired(cmd, "key", "type", "version")
	completeKeys(cmd, flags)
	completeTypes(cmd)
	completeVersions(cmd, flags, &w.Key, (*typeFlag)(&w.Type))
	completeNothing(cmd, "percent", "clients", "settle", "lost", "timeout", "every")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case w.Percent <= 0 || w.Percent > 100:
			return usageErrorf("--percent: must be over 0 and at most 100, but is %v", w.Percent)
		case w.Lost < 0 || w.Lost > 100:
			return usageErrorf("--lost: must be from 0 to 100, but is %v", w.Lost)
		case w.Settle < 0:
			return usageErrorf("--settle: must not be negative, but is %s", w.Settle)
		case w.Timeout <= 0:
			return usageErrorf("--timeout: must be over 0, but is %s", w.Timeout)
		case w.Every <= 0:
			return usageErrorf("--every: must be over 0, but is %s", w.Every)
		case w.Key == "":
			return usageErrorf("--key: must not be empty")
		case w.Version == "":
			return usageErrorf("--version: must not be empty")
		}
		c, err := flags.client()
		if err != nil {
			return err
		}
		defer c.Close()
		w.Relay, w.Out, w.Errs, w.Format = c, cmd.OutOrStdout(), cmd.ErrOrStderr(), *format
		switch err := wait.For(cmd.Context(), w); {
		case errors.Is(err, wait.ErrLate):
			return exitError(exitLate)
		case errors.Is(err, wait.ErrUnreachable):
			return exitError(exitUnreachable)
		default:
			return err
		}
	}
	return cmd
}

// The exit codes of a wait beside 0 and 1.
const (
	exitLate        = 2
	exitUnreachable = 3
)
