package explain

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"xdsrelay/config"
	"xdsrelay/internal/admin"
	"xdsrelay/internal/adminclient"
	"xdsrelay/internal/aggregator"
	"xdsrelay/internal/terminal"
)

// Difference is the output of explain --diff: the clients of a running relay that would have other
// keys under the rules of another configuration.
type Difference struct {
	Clients int         `json:"clients" yaml:"clients"` // streams and REST clients
	Moving  []moving    `json:"items" yaml:"items"`     // by node
	Pairs   []keyChange `json:"pairs" yaml:"pairs"`
	// Admission has the addresses of listeners with other rules for identity or Secrets. Moving
	// does not have the clients that those rules would end.
	Admission []string `json:"admission,omitempty" yaml:"admission,omitempty"`
	// Elsewhere has the addresses at which the relay has no listener to compare with.
	Elsewhere []string `json:"elsewhere,omitempty" yaml:"elsewhere,omitempty"`
	// NeedsForce: a reload needs --force, because of aggregation.max_rekeyed.
	NeedsForce bool `json:"needs_force,omitempty" yaml:"needs_force,omitempty"`

	drain time.Duration
}

// moving is a client that the relay would end and that would reconnect.
type moving struct {
	Stream   uint64       `json:"stream" yaml:"stream"`
	Node     string       `json:"node" yaml:"node"`
	Peer     string       `json:"peer" yaml:"peer"`
	Identity string       `json:"identity,omitempty" yaml:"identity,omitempty"`
	Types    []typeChange `json:"types" yaml:"types"`
}

// typeChange is a type with another key. From is empty if it had none, To if the node would be
// refused.
type typeChange struct {
	Type    string `json:"type" yaml:"type"`
	From    string `json:"from,omitempty" yaml:"from,omitempty"`
	To      string `json:"to,omitempty" yaml:"to,omitempty"`
	Refused string `json:"refused,omitempty" yaml:"refused,omitempty"`
}

// keyChange counts clients by their present and their new key.
type keyChange struct {
	From    string `json:"from,omitempty" yaml:"from,omitempty"`
	To      string `json:"to,omitempty" yaml:"to,omitempty"`
	Clients int    `json:"clients" yaml:"clients"`
	Nodes   int    `json:"nodes" yaml:"nodes"` // distinct ids
}

// Diff asks a running relay which of its clients would have other keys under a configuration.
func Diff(ctx context.Context, cfg *config.Config, client func() (*adminclient.Client, error)) (*Difference, error) {
	// The running relay would find the same faults, but not their places.
	if _, err := aggregator.Compile(cfg); err != nil {
		return nil, err
	}
	text, err := rulesText(cfg)
	if err != nil {
		return nil, err
	}
	c, err := client()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var listeners []map[string]string
	for _, l := range cfg.Downstream.Listen() {
		listeners = append(listeners, map[string]string{"address": l.Address, "identity": l.Identity, "secrets": l.Secrets})
	}
	body, err := json.Marshal(map[string]any{"rules": string(text), "unmatched": cfg.Aggregation.Unmatched, "by_token": cfg.Upstream.ByToken(), "listeners": listeners})
	if err != nil {
		return nil, err
	}
	if len(body) > admin.MaxBody {
		key := "aggregation.rules"
		if cfg.Aggregation.File != "" {
			key = "aggregation.file"
		}
		return nil, config.Faults{cfg.Places.Fault(key, "the rules have %d bytes as JSON, but a running relay takes at most %d bytes for a comparison; the configuration file of the relay has no such limit", len(body), admin.MaxBody)}
	}
	d := &Difference{Moving: []moving{}, drain: cfg.Downstream.Drain}
	for token := ""; ; {
		var page struct {
			Checked   int      `json:"checked"`
			Admission []string `json:"admission"`
			Elsewhere []string `json:"elsewhere"`
			Items     []moving `json:"items"`
			Next      string   `json:"next_page_token"`
		}
		if err := c.Post(ctx, "/explain/diff?page_token="+url.QueryEscape(token), body, &page); err != nil {
			return nil, err
		}
		d.Clients += page.Checked
		d.Admission, d.Elsewhere = page.Admission, page.Elsewhere
		d.Moving = append(d.Moving, page.Items...)
		if token = page.Next; token == "" {
			break
		}
	}
	d.count()
	d.NeedsForce = cfg.Aggregation.NeedsForce(len(d.Moving), d.Clients)
	return d, nil
}

// rulesText returns the rules of a configuration as the text of a rules file.
func rulesText(cfg *config.Config) ([]byte, error) {
	if f := cfg.Aggregation.File; f != "" {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, config.Faults{cfg.Places.Fault("aggregation.file", "%v", err)}
		}
		return text, nil
	}
	return yaml.Marshal(cfg.Aggregation.Rules)
}

// count orders the clients by node, and sums them up by pairs of keys, the most frequent first.
func (d *Difference) count() {
	slices.SortFunc(d.Moving, func(a, b moving) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Stream, b.Stream))
	})
	type pair struct{ from, to string }
	clients, nodes := map[pair]int{}, map[pair]map[string]bool{}
	for _, m := range d.Moving {
		seen := map[pair]bool{}
		for _, t := range m.Types {
			seen[pair{t.From, t.To}] = true
		}
		for p := range seen {
			clients[p]++
			if nodes[p] == nil {
				nodes[p] = map[string]bool{}
			}
			nodes[p][m.Node] = true
		}
	}
	d.Pairs = []keyChange{}
	for p, n := range clients {
		d.Pairs = append(d.Pairs, keyChange{p.from, p.to, n, len(nodes[p])})
	}
	slices.SortFunc(d.Pairs, func(a, b keyChange) int {
		return cmp.Or(cmp.Compare(b.Clients, a.Clients), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
}

// row is a line of the table: all streams of a node with the same change of a key.
type row struct{ node, types, from, to string }

func (d *Difference) rows() []row {
	var out []row
	at := map[row]int{} // without types
	for _, m := range d.Moving {
		for _, t := range m.Types {
			r := row{node: cmp.Or(m.Node, "-"), from: cmp.Or(t.From, "-"), to: cmp.Or(t.To, "-")}
			if t.To == "" {
				r.to = "refused: " + terminal.Shorten(terminal.OneLine(t.Refused))
			}
			i, ok := at[r]
			if !ok {
				i = len(out)
				at[r] = i
				out = append(out, r)
			}
			if short := terminal.ShortType(t.Type); !slices.Contains(strings.Fields(out[i].types), short) {
				out[i].types = strings.TrimSpace(out[i].types + " " + short)
			}
		}
	}
	return out
}

// Print writes which clients get other keys as text.
func (d *Difference) Print(w io.Writer) {
	if len(d.Moving) == 0 {
		fmt.Fprintf(w, "all %d clients keep their keys\n", d.Clients)
	} else {
		moving, pairs := [][]terminal.Cell{terminal.Cells("NODE", "TYPES", "KEY", "NEW KEY")}, [][]terminal.Cell{terminal.Cells("CLIENTS", "NODES", "KEY", "NEW KEY")}
		for _, r := range d.rows() {
			moving = append(moving, terminal.Cells(r.node, r.types, r.from, r.to))
		}
		for _, p := range d.Pairs {
			pairs = append(pairs, terminal.Cells(strconv.Itoa(p.Clients), strconv.Itoa(p.Nodes), cmp.Or(p.From, "-"), cmp.Or(p.To, "refused")))
		}
		terminal.Style{}.Table(w, moving)
		fmt.Fprintln(w)
		terminal.Style{}.Table(w, pairs)
		fmt.Fprintln(w)
		fmt.Fprintf(w, "%d of %d clients would reconnect, over %s%s\n", len(d.Moving), d.Clients, d.drain, d.refusals())
	}
	if d.NeedsForce {
		fmt.Fprintln(w, "these are more than aggregation.max_rekeyed allows: the relay applies the rules only after \"relay reload --force\"")
	}
	if len(d.Admission) > 0 {
		fmt.Fprintf(w, "identity or secrets differ at %s: the relay would also end the clients that the new values refuse; they are not counted\n", strings.Join(d.Admission, ", "))
	}
	if len(d.Elsewhere) > 0 {
		fmt.Fprintf(w, "the relay has no listener at %s until a restart: its identity and secrets were not compared\n", strings.Join(d.Elsewhere, ", "))
	}
}

// refusals counts the clients that would be refused when they reconnect.
func (d *Difference) refusals() string {
	n := 0
	for _, m := range d.Moving {
		if slices.ContainsFunc(m.Types, func(t typeChange) bool { return t.Refused != "" }) {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("; the relay would refuse %d of them for some or all types", n)
}
