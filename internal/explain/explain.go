package explain

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"xdsrelay/config"
	"xdsrelay/internal/adminclient"
	"xdsrelay/internal/aggregator"
	"xdsrelay/internal/expr"
	"xdsrelay/internal/telemetry/redact"
	"xdsrelay/internal/terminal"
	"xdsrelay/internal/xds"
)

// Keys are the explained keys of a node: one for each type, or a single one without a type if the
// rules do not use the type.
type Keys struct {
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

// Node explains the keys of a node under the rules of a configuration. typ may be empty.
func Node(cfg *config.Config, in *aggregator.Input, typ xds.TypeURL) (*Keys, error) {
	rules, err := aggregator.Compile(cfg)
	if err != nil {
		return nil, err
	}
	out := &Keys{Node: in.Node.ID, Cluster: in.Node.Cluster}
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
func (k *Keys) explainUpstream(cfg *config.Config, node *xds.Node) error {
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
			k.UpstreamError = redact.Text(err.Error())
			return nil
		}
		if sent.GetId() == "" {
			k.Warnings = append(k.Warnings, "upstream.node sets no id: many origins reject or ignore a node without one")
		}
		k.UpstreamNode, err = redact.JSON(sent)
		return err
	})
}

// Connected asks a running relay to explain the keys of a connected client.
func Connected(ctx context.Context, c *adminclient.Client, node string, typ xds.TypeURL) (*Keys, error) {
	q := url.Values{"node": {node}}
	if typ != "" {
		q.Set("type", string(typ))
	}
	out := new(Keys)
	return out, c.Get(ctx, "/explain", q, out)
}

// InForce asks a running relay to explain the keys of any node.
func InForce(ctx context.Context, c *adminclient.Client, in *aggregator.Input, typ xds.TypeURL) (*Keys, error) {
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
	out, query := new(Keys), ""
	if typ != "" {
		query = "?type=" + url.QueryEscape(string(typ))
	}
	return out, c.Post(ctx, "/explain"+query, body, out)
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

// Print writes the explanations as tables. Types with equal explanations share one.
func (k *Keys) Print(w io.Writer) {
	fmt.Fprintf(w, "node     %s\n", terminal.Visible(cmp.Or(k.Node, "-")))
	fmt.Fprintf(w, "cluster  %s\n", terminal.Visible(cmp.Or(k.Cluster, "-")))
	if k.Program != "" {
		fmt.Fprintf(w, "agent    %s (assumed for a bootstrap of %s, unless it names one)\n", terminal.Visible(k.UserAgent), k.Program)
		fmt.Fprintf(w, "unknown  %s: the program adds them, and rules that read them may differ\n", strings.Join(k.Unknown, ", "))
	}
	switch {
	case k.UpstreamError != "":
		fmt.Fprintf(w, "origin   upstream.node fails, and the relay refuses the client: %s\n", terminal.Visible(k.UpstreamError))
	case k.UpstreamNode != nil:
		fmt.Fprintf(w, "origin   %s\n", terminal.Visible(string(k.UpstreamNode)))
	}
	for _, warning := range k.Warnings {
		fmt.Fprintf(w, "warning  %s\n", warning)
	}
	for len(k.Types) > 0 {
		var same []string
		first := k.Types[0]
		k.Types = slices.DeleteFunc(k.Types, func(x *aggregator.Explanation) bool {
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
		rows = append(rows, terminal.Cells(r.Rule, cmp.Or(place, "-"), r.Result, MatchText(r.Match, r.Types)))
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

// MatchText is the match of a rule on one line, with its types.
func MatchText(match string, types []string) string {
	match = terminal.OneLine(match)
	if len(types) > 0 {
		match += " for " + strings.Join(terminal.ShortTypes(types), " ")
	}
	return match
}
