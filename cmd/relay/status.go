package main

import (
	"github.com/spf13/cobra"

	"xdsrelay/internal/status"
)

func newStatusCmd() *cobra.Command {
	var (
		flags     *runningFlags
		st        status.Report
		key, node string
		check     bool
	)
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the clients of a running relay and their state",
		Long: `Show the clients of a running relay, with the state and version of each type, the
worst first:

  NACKED    The client rejected the version. "relay diff NODE" shows the resources.
  STALE     The client has not answered the last response, or the relay has not sent
            all resources of the newest version. The column shows for how long.
  NOT SENT  The relay has sent nothing yet, or the client lacks only names for which
            the origin has not answered. "relay diff NODE" lists these names.
  UNCONFIRMED
            The client keeps what it had when it connected. The origin has not answered yet.
  SYNCED    The client acknowledged the newest version of all its resources.

A row is a node under a key. A node that has the same type on several streams has
several rows. With -o wide a row is a stream under a key, with the user agent, the peer,
and how long it has been open. "(older)" marks a type that a newer stream of the node requests as well,
on another connection. The node has often lost the connection of such a stream.

--state selects clients by the worst state of their types, or by the state of the type
of --type. Write a key as the column KEY shows it: a/b has two elements, "a/b" has
one. An unknown key and a node that is not connected are errors.

--members shows the clients of all relays of the cluster. The relay asks the others.
Each has 2 s. The command names those that did not answer, and exits with 1. A relay
that died is one of them for ten minutes, or for --ignore-dead.

--summary shows numbers instead of clients: by type, by key, and by user agent.

--watch prints again and again. If the terminal has too few lines, it leaves out the
last rows of the table.

Problems of the relay itself come last: unreachable or silent origins, unusable files,
types served from the store, and streams refused in the last minute. With --no-headers
they are on standard error. Of problems with the same impact and next step, only the
first three are shown. "relay status --summary -o json" has them all.

--check exits with 1 if the relay has problems. It prints the same as without --check.` + cutHelp,
		Example: `  relay status
  relay status --admin 127.0.0.1:19000 --key edge
  relay status --state NACKED,STALE --type CDS
  relay status --summary --watch
  relay status --summary --check
  relay status --members --key edge
  relay status --node sidecar~10.0.0.1~web-0 -o yaml`,
		Args: noArgs,
	}
	shown := addTableFlags(cmd)
	flags = addRunningFlags(cmd)
	f := cmd.Flags()
	f.StringVarP(&key, "key", "k", "", "only clients of this key, as the column KEY shows it")
	f.StringVarP(&node, "node", "n", "", "only the node with this id")
	f.Var((*statesFlag)(&st.States), "state", "only clients in these states, separated by commas: SYNCED, UNCONFIRMED, NOT_SENT, STALE, NACKED")
	f.VarP((*typeFlag)(&st.Type), "type", "t", "only clients with this type, a short name such as CDS or a URL, and only its column")
	f.StringVar(&st.UserAgent, "user-agent", "", "only clients with this user agent, with or without its version: envoy, \"envoy 1.40.0\"")
	f.BoolVar(&st.AllMembers, "members", false, "the clients of all relays of the cluster")
	addIgnoreDeadFlag(cmd, &st.IgnoreDead)
	f.BoolVar(&st.Summary, "summary", false, "print numbers instead of clients")
	f.BoolVar(&check, "check", false, "exit with 1 if the relay has problems")
	shown.addWatchFlag(cmd)
	completeKeys(cmd, flags)
	completeNodes(cmd, flags)
	completeStates(cmd)
	completeTypes(cmd)
	completeNothing(cmd, "user-agent")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		st.Layout = shown.Layout
		if f.Changed("key") {
			st.Key = &key
		}
		if f.Changed("node") {
			st.Node = &node
		}
		for _, of := range []string{"node", "state", "type", "user-agent", "members"} {
			if st.Summary && f.Changed(of) {
				return usageErrorf("--summary: cannot be used with --%s, because it counts all clients of a key or of the relay", of)
			}
		}
		switch {
		case st.Summary && st.NoHeaders:
			return usageErrorf("--summary: cannot be used with --no-headers, because it prints several tables; for scripts use -o json")
		case shown.watch && check:
			return usageErrorf("--check: cannot be used with --watch, which goes on until a signal")
		case st.AllMembers && check:
			return usageErrorf("--check: cannot be used with --members, because each relay has problems of its own")
		}
		var err error
		if st.Relay, err = flags.client(); err != nil {
			return err
		}
		defer st.Relay.Close()
		err = shown.run(cmd, st.Print)
		if check && err == nil {
			if problems, e := st.Relay.Problems(cmd.Context()); e != nil {
				err = e
			} else if len(problems) > 0 {
				err = errReported
			}
		}
		return err
	}
	return cmd
}
