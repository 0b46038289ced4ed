package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"

	"xdsrelay/config"
	"xdsrelay/internal/aggregator"
	"xdsrelay/internal/expr"
	"xdsrelay/internal/telemetry/redact"
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
that gives both one key is too coarse if anything differs. Origins that answer only
names, as for proxyless gRPC, do not answer the command.

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
			c, err := explainCompare(cmd, *file, args)
			if err != nil {
				return err
			}
			return terminal.Print(cmd.OutOrStdout(), *format, c, c.print)
		case len(args) > 1:
			return usageErrorf("explain: takes one NODE, but has %d arguments", len(args))
		case len(args) > 0 && (given("node") || given("peer") || given("diff")):
			return usageErrorf("explain: NODE cannot be used with --node, --peer or --diff")
		case len(args) > 0:
			out, err := running.explainClient(args[0], xds.TypeURL(typ))
			return printExplained(cmd, *format, out, err)
		case !given("diff") && !given("node"):
			return usageErrorf("explain: needs NODE, --node FILE or --diff FILE")
		case given("diff"):
			for _, of := range []string{"node", "peer", "type"} {
				if given(of) {
					return usageErrorf("--diff: cannot be used with --%s, because it compares all clients of a running relay", of)
				}
			}
			running := ""
			if given("config") {
				running = *file
			}
			d, err := explainDiff(cmd, *diff, running, flags)
			if err != nil {
				return err
			}
			return terminal.Print(cmd.OutOrStdout(), *format, d, d.print)
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
		var out *explained
		if cmd.Flags().Changed("admin") {
			out, err = running.explain(&in, xds.TypeURL(typ))
		} else {
			out, err = explain(cmd, *file, &in, xds.TypeURL(typ))
		}
		if err == nil && in.Program != "" {
			out.Program, out.UserAgent, out.Unknown = in.Program, in.Node.UserAgent, in.Unknown()
		}
		return printExplained(cmd, *format, out, err)
	}
	return cmd
}

func printExplained(cmd *cobra.Command, format string, out *explained, err error) error {
	if err != nil {
		return err
	}
	failed := out.UpstreamError != "" || slices.ContainsFunc(out.Types, func(x *aggregator.Explanation) bool { return x.Refused != "" })
	err = terminal.Print(cmd.OutOrStdout(), format, out, out.print)
	if err == nil && failed {
		err = errReported
	}
	return err
}

// explained is the output of explain. It has one explanation for each type, or a single one without
// a type if the rules do not use the type.
type explained struct {
	Node    string `json:"node" yaml:"node"`
	Cluster string `json:"cluster,omitempty" yaml:"cluster,omitempty"`
	// Program has the bootstrap with the node; empty: the node is in no bootstrap. UserAgent is the one
	// that was assumed, if the bootstrap has none. Unknown are the fields that the program adds.
	Program   string   `json:"program,omitempty" yaml:"program,omitempty"`
	UserAgent string   `json:"user_agent,omitempty" yaml:"user_agent,omitempty"`
	Unknown   []string `json:"unknown_fields,omitempty" yaml:"unknown_fields,omitempty"`
	// UpstreamNode is the result of upstream.node, and UpstreamError why it fails. Both are absent if the
	// origin gets the client's node, or if a running relay was asked.
	UpstreamNode  json.RawMessage           `json:"upstream_node,omitempty" yaml:"upstream_node,omitempty"`
	UpstreamError string                    `json:"upstream_error,omitempty" yaml:"upstream_error,omitempty"`
	Warnings      []string                  `json:"warnings,omitempty" yaml:"warnings,omitempty"`
	Types         []*aggregator.Explanation `json:"types" yaml:"types"`
}

// explain explains the keys under the rules of a file.
func explain(cmd *cobra.Command, file string, in *aggregator.Input, typ xds.TypeURL) (*explained, error) {
	cfg, err := config.Load(file, cmd.Flags())
	if err != nil {
		return nil, err
	}
	rules, err := aggregator.Compile(cfg)
	if err != nil {
		return nil, err
	}
	out := &explained{Node: in.Node.ID, Cluster: in.Node.Cluster}
	if err := out.explainUpstream(cfg, in.Node); err != nil {
		return nil, err
	}
	for _, t := range typesToExplain(typ, rules) {
		x, err := rules.Explain(in.Node, in.Peer, t)
		if err != nil {
			return nil, err
		}
		out.Types = append(out.Types, x)
	}
	return out, nil
}

// explainUpstream evaluates upstream.node for a client's node.
func (e *explained) explainUpstream(cfg *config.Config, node *xds.Node) error {
	if cfg.Upstream.Node == "" {
		return nil
	}
	program, err := expr.NewNode(cfg.Upstream.Node)
	if err != nil {
		return aggregator.ExprFaults(cfg.Places, "upstream.node", err)
	}
	return node.With(func(m *corev3.Node) error {
		sent, err := program.Eval(m)
		if err != nil {
			e.UpstreamError = redact.Text(err.Error())
			return nil
		}
		if sent.GetId() == "" {
			e.Warnings = append(e.Warnings, "upstream.node sets no id: many origins reject or ignore a node without one")
		}
		e.UpstreamNode, err = redact.JSON(sent)
		return err
	})
}

// explainClient asks the running relay to explain the keys of a connected client.
func (f *runningFlags) explainClient(node string, typ xds.TypeURL) (*explained, error) {
	c, err := f.client()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	q := url.Values{"node": {node}}
	if typ != "" {
		q.Set("type", string(typ))
	}
	out := new(explained)
	return out, c.Get(f.cmd.Context(), "/explain", q, out)
}

// explain asks the running relay to explain the keys.
func (f *runningFlags) explain(in *aggregator.Input, typ xds.TypeURL) (*explained, error) {
	c, err := f.client()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	message, err := in.Node.Decode()
	if err != nil {
		return nil, err
	}
	text, err := protojson.Marshal(message)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(map[string]any{"node": json.RawMessage(text), "peer": in.Peer})
	if err != nil {
		return nil, err
	}
	out, query := new(explained), ""
	if typ != "" {
		query = "?type=" + url.QueryEscape(string(typ))
	}
	return out, c.Post(f.cmd.Context(), "/explain"+query, body, out)
}

// typesToExplain returns the type of --type, or all types if the rules use the type.
func typesToExplain(only xds.TypeURL, rules *aggregator.Rules) []xds.TypeURL {
	if only != "" || !rules.UsesType() {
		return []xds.TypeURL{only}
	}
	var all []xds.TypeURL
	for _, t := range xds.Types() {
		all = append(all, t.URL)
	}
	return all
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

// print writes the explanations as tables. Types with equal explanations share one.
func (e *explained) print(w io.Writer) {
	fmt.Fprintf(w, "node     %s\n", terminal.Visible(terminal.OrNone(e.Node)))
	fmt.Fprintf(w, "cluster  %s\n", terminal.Visible(terminal.OrNone(e.Cluster)))
	if e.Program != "" {
		fmt.Fprintf(w, "agent    %s (assumed for a bootstrap of %s, unless it names one)\n", terminal.Visible(e.UserAgent), e.Program)
		fmt.Fprintf(w, "unknown  %s: the program adds them, and rules that read them may differ\n", strings.Join(e.Unknown, ", "))
	}
	switch {
	case e.UpstreamError != "":
		fmt.Fprintf(w, "origin   upstream.node fails, and the relay refuses the client: %s\n", terminal.Visible(e.UpstreamError))
	case e.UpstreamNode != nil:
		fmt.Fprintf(w, "origin   %s\n", terminal.Visible(string(e.UpstreamNode)))
	}
	for _, warning := range e.Warnings {
		fmt.Fprintf(w, "warning  %s\n", warning)
	}
	for len(e.Types) > 0 {
		var same []string
		first := e.Types[0]
		e.Types = slices.DeleteFunc(e.Types, func(x *aggregator.Explanation) bool {
			if !alike(x, first) {
				return false
			}
			same = append(same, terminal.ShortType(x.Type))
			return true
		})
		printExplanation(w, same, first)
	}
}

// alike reports whether two explanations are equal but for their types.
func alike(a, b *aggregator.Explanation) bool {
	return a.Key == b.Key && a.Own == b.Own && a.Refused == b.Refused &&
		slices.EqualFunc(a.Rules, b.Rules, func(x, y aggregator.RuleResult) bool {
			return x.Result == y.Result && x.Error == y.Error && slices.Equal(x.Key, y.Key)
		})
}

func printExplanation(w io.Writer, types []string, x *aggregator.Explanation) {
	fmt.Fprintf(w, "\ntype     %s\n", strings.Join(types, ", "))
	switch {
	case x.Refused != "":
		fmt.Fprintf(w, "refused  %s\n", x.Refused)
	case x.Own:
		fmt.Fprintf(w, "key      %s (no rule matched; the node gets its own key)\n", x.Key)
	default:
		fmt.Fprintf(w, "key      %s\n", x.Key)
	}
	if x.Owner != "" {
		fmt.Fprintf(w, "owner    %s\n", terminal.Visible(x.Owner))
	}
	fmt.Fprintln(w)
	rows := [][]terminal.Cell{terminal.Cells("RULE", "PLACE", "RESULT", "MATCH")}
	for _, r := range x.Rules {
		place := r.Place.File
		if r.Place.Line > 0 {
			place = fmt.Sprintf("%s:%d", r.Place.File, r.Place.Line)
		}
		rows = append(rows, terminal.Cells(r.Rule, terminal.OrNone(place), r.Result, matchText(r.Match, r.Types)))
		for _, v := range r.Values {
			rows = append(rows, terminal.Cells("", "", "", fmt.Sprintf("  %s = %s", v.Expr, terminal.Shorten(v.String()))))
		}
		if r.Error != "" && !slices.ContainsFunc(r.Values, func(v expr.Value) bool { return v.Error == r.Error }) {
			rows = append(rows, terminal.Cells("", "", "", "  error: "+r.Error))
		}
		for i, k := range r.Key {
			got := fmt.Sprintf("%q", terminal.Shorten(k.Value))
			if k.Error != "" {
				got = "error: " + k.Error
			}
			rows = append(rows, terminal.Cells("", "", "", fmt.Sprintf("  key[%d] %s -> %s", i, k.Expr, got)))
		}
	}
	terminal.Style{}.Table(w, rows)
}
