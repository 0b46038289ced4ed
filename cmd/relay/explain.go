package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"xdsrelay/config"
	"xdsrelay/internal/adminclient"
	"xdsrelay/internal/aggregator"
	"xdsrelay/internal/explain"
	"xdsrelay/internal/expr"
	"xdsrelay/internal/terminal"
	"xdsrelay/internal/xds"
)

func newExplainCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain [NODE]",
		Short: "Show which key a node gets, or which keys new rules change",
		Long: `Compute the key of a node from the rules of a configuration. Show the result of each
rule and the values that it read.

The node is an envoy.config.core.v3.Node in JSON or YAML, or a bootstrap of Envoy or
gRPC that has one. The programs add fields to the node of their bootstrap. For a
bootstrap the command assumes the user agent envoy or gRPC, and prints which fields are
unknown. The peer has the fields address, uri_sans, dns_sans and subject. It may also
be a second YAML document in the node's file. The command does not evaluate
downstream.identity, which may refuse the client. It evaluates upstream.node and prints
the node that the origin would see.

With NODE, the id of a connected client, the command asks a running relay for the key of
this client by the rules in force. With --node and --admin, it asks for the key of any
node. In a cluster, the answer also names the member that owns the key.

If the rules depend on the resource type, the command shows all types, or the one of
--type. It exits with 1 if the rules refuse the node for one of these types, or if
upstream.node fails.

With --compare, the command asks the origin for the nodes in two files, each over a
stream of its own, as the relay would for a key. It waits for listeners and clusters,
and for the routes and endpoints that these name, at most for
upstream.first_answer_timeout. It prints the keys of both nodes and what differs: a rule
that gives both one key is too coarse if anything differs. It exits with 1 if an answer
is missing. Origins that answer only names, as for proxyless gRPC, do not answer the
command.

With --diff, the command asks a running relay which of its clients get another key
under a new configuration. If the relay loaded this configuration, it would end the
streams of these clients, and they would reconnect. The request changes nothing in
the relay. The command does not evaluate the new downstream.identity and secrets. It
only prints at which listeners they differ. The exit code does not depend on the
number of clients.`,
		Example: `  echo '{"id": "web-1", "cluster": "web", "locality": {"zone": "eu-1"}}' >node.json
  relay explain --config relay.yaml --node node.json
  relay explain --config relay.yaml --node node.json --peer peer.json --type EDS -o json
  relay explain sidecar~10.0.0.1~web-0
  relay explain --node node.json --admin 127.0.0.1:19000
  relay explain --config relay.yaml --compare a.json b.json
  relay explain --diff new.yaml --admin 127.0.0.1:19000
  relay explain --diff new.yaml --config relay.yaml`,
		Args: cobra.MaximumNArgs(2),
	}
	file := addConfigFlags(cmd)
	format := addOutputFlag(cmd, terminal.FormatTable, terminal.FormatJSON, terminal.FormatYAML)
	nodeFile := cmd.Flags().String("node", "", "file with the node, or - for standard input")
	peerFile := cmd.Flags().String("peer", "", "file with the peer, or - for standard input (default: a peer without certificate)")
	var typ typeFlag
	cmd.Flags().VarP(&typ, "type", "t", "only this resource type, a short name such as CDS or a URL")
	diff := cmd.Flags().String("diff", "", "file with a new configuration; show the clients of a running relay that it moves")
	compare := cmd.Flags().Bool("compare", false, "ask the origin for the nodes in two files, and show what differs")
	flags := addAdminFlags(cmd, "admin.address of --config, else of --diff")
	completeTypes(cmd)
	running := &runningFlags{flags, file, cmd}
	cmd.ValidArgsFunction = completeFirst(nodeNames(running))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch given := cmd.Flags().Changed; {
		case *compare && (len(args) != 2 || given("node") || given("peer") || given("diff") || given("type")):
			return usageErrorf("--compare: takes the files of two nodes, and cannot be used with --node, --peer, --type or --diff")
		case *compare:
			cfg, err := config.Load(*file, cmd.Flags())
			if err != nil {
				return err
			}
			read := func(file string) (aggregator.Input, error) { return readNode(cmd.InOrStdin(), file) }
			c, err := explain.Compare(cmd.Context(), cfg, args, read)
			if err != nil {
				return err
			}
			err = terminal.Print(cmd.OutOrStdout(), *format, c, c.Print)
			if err == nil && !c.Complete() {
				err = errReported
			}
			return err
		case len(args) > 1:
			return usageErrorf("explain: takes one NODE, but has %d arguments", len(args))
		case len(args) > 0 && (given("node") || given("peer") || given("diff")):
			return usageErrorf("explain: NODE cannot be used with --node, --peer or --diff")
		case len(args) > 0:
			c, err := running.client()
			if err != nil {
				return err
			}
			defer c.Close()
			out, err := explain.Connected(cmd.Context(), c, args[0], xds.TypeURL(typ))
			return printExplained(cmd, *format, out, err)
		case !given("diff") && !given("node"):
			return usageErrorf("explain: needs NODE, --node FILE or --diff FILE")
		case given("diff"):
			for _, of := range []string{"node", "peer", "type"} {
				if given(of) {
					return usageErrorf("--diff: cannot be used with --%s, because it compares all clients of a running relay", of)
				}
			}
			cfg, err := config.Load(*diff, cmd.Flags())
			if err != nil {
				return err
			}
			reached := cfg
			if given("config") { // it has the address of the relay
				if reached, err = reachable(config.Loader(*file, nil)); err != nil {
					return err
				}
			}
			d, err := explain.Diff(cmd.Context(), cfg, func() (*adminclient.Client, error) { return adminclient.New(*flags, reached) })
			if err != nil {
				return err
			}
			return terminal.Print(cmd.OutOrStdout(), *format, d, d.Print)
		}
		in, err := readNode(cmd.InOrStdin(), *nodeFile)
		if err != nil {
			return err
		}
		if *peerFile != "" {
			if in.Peer, err = readPeer(cmd.InOrStdin(), *peerFile); err != nil {
				return err
			}
		}
		var out *explain.Keys
		if cmd.Flags().Changed("admin") {
			c, e := running.client()
			if e != nil {
				return e
			}
			defer c.Close()
			out, err = explain.InForce(cmd.Context(), c, &in, xds.TypeURL(typ))
		} else {
			cfg, e := config.Load(*file, cmd.Flags())
			if e != nil {
				return e
			}
			out, err = explain.Node(cfg, &in, xds.TypeURL(typ))
		}
		if err == nil && in.Program != "" {
			out.Program, out.UserAgent, out.Unknown = in.Program, in.Node.UserAgent, in.Unknown()
		}
		return printExplained(cmd, *format, out, err)
	}
	return cmd
}

func printExplained(cmd *cobra.Command, format string, out *explain.Keys, err error) error {
	if err != nil {
		return err
	}
	failed := out.UpstreamError != "" || slices.ContainsFunc(out.Types, func(x *aggregator.Explanation) bool { return x.Refused != "" })
	err = terminal.Print(cmd.OutOrStdout(), format, out, out.Print)
	if err == nil && failed {
		err = errReported
	}
	return err
}

// maxInput bounds the input files in bytes. A node has at most a megabyte by default.
const maxInput = 64 << 20

func readInput(stdin io.Reader, flag, file string) ([]byte, error) {
	in := stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", flag, err)
		}
		defer f.Close()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, maxInput+1))
	if err == nil && len(b) > maxInput {
		err = errors.New("must have at most 64 MiB")
	}
	if err != nil {
		return nil, fmt.Errorf("--%s %s: %w", flag, file, err)
	}
	return b, nil
}

// readNode reads a node, and a peer if the file has one: see aggregator.ParseNode.
func readNode(stdin io.Reader, file string) (aggregator.Input, error) {
	b, err := readInput(stdin, "node", file)
	if err != nil {
		return aggregator.Input{}, err
	}
	in, err := aggregator.ParseNode(b, new(xds.NodeTable))
	if err != nil {
		return in, fmt.Errorf("--node %s: %w", file, err)
	}
	return in, nil
}

func readPeer(stdin io.Reader, file string) (expr.Peer, error) {
	b, err := readInput(stdin, "peer", file)
	if err != nil {
		return expr.Peer{}, err
	}
	peer, err := aggregator.ParsePeer(b)
	if err != nil {
		return peer, fmt.Errorf("--peer %s: %w", file, err)
	}
	return peer, nil
}
