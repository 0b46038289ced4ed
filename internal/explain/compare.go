package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"xdsrelay/config"
	"xdsrelay/internal/admin/compare"
	"xdsrelay/internal/aggregator"
	"xdsrelay/internal/expr"
	"xdsrelay/internal/fleet"
	"xdsrelay/internal/relay"
	"xdsrelay/internal/terminal"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Comparison is the output of explain --compare: what the origin sends to two nodes.
type Comparison struct {
	Nodes []comparedNode `json:"nodes" yaml:"nodes"`
	Types []comparedType `json:"types" yaml:"types"`
}

// comparedNode is one of the two nodes.
type comparedNode struct {
	File string `json:"file" yaml:"file"`
	Node string `json:"node" yaml:"node"`
	// Keys are those of the node, for all types. Refused is why it has none for some type.
	Keys    []string `json:"keys,omitempty" yaml:"keys,omitempty"`
	Refused string   `json:"refused,omitempty" yaml:"refused,omitempty"`
	// Unanswered are types that the origin did not answer in time, or not for all names.
	Unanswered []string `json:"unanswered,omitempty" yaml:"unanswered,omitempty"`
	Error      string   `json:"error,omitempty" yaml:"error,omitempty"` // of the stream to the origin
}

// comparedType has the differing resources of a type. Has is that of the first node, Offered that of
// the second one.
type comparedType struct {
	Type  string               `json:"type" yaml:"type"`
	Equal int                  `json:"equal" yaml:"equal"`
	Items []compare.Difference `json:"items" yaml:"items"`
}

// Compare asks the origin for the nodes in two files. read reads a file.
func Compare(ctx context.Context, cfg *config.Config, nodeFiles []string, read func(file string) (aggregator.Input, error)) (*Comparison, error) {
	if cfg.Upstream.ByToken() {
		return nil, errors.New("--compare: an origin has token: representative, so it answers only with the token of a connected client")
	}
	rules, err := aggregator.Compile(cfg)
	if err != nil {
		return nil, err
	}
	sentBy := func(n *xds.Node) ([]byte, error) { return n.Bytes(), nil }
	if cfg.Upstream.Node != "" {
		program, err := expr.NewNode(cfg.Upstream.Node)
		if err != nil {
			return nil, aggregator.ExprFaults(cfg.Places, "upstream.node", err)
		}
		sentBy = program.Encode
	}
	out := &Comparison{Nodes: make([]comparedNode, 2)}
	var sent [2][]byte
	for i, name := range nodeFiles {
		in, err := read(name)
		if err != nil {
			return nil, err
		}
		if sent[i], err = sentBy(in.Node); err != nil {
			return nil, fmt.Errorf("--compare %s: %w", name, err)
		}
		n := &out.Nodes[i]
		n.File, n.Node = name, in.Node.ID
		for _, t := range typesToExplain("", rules) {
			if key, err := rules.Key(in.Node, in.Peer, t); err != nil {
				n.Refused = err.Error()
			} else if k := key.String(); !slices.Contains(n.Keys, k) {
				n.Keys = append(n.Keys, k)
			}
		}
	}
	if slices.Equal(sent[0], sent[1]) {
		return nil, errors.New("--compare: the origin would see the same node for both, so it cannot tell them apart: the files or the results of upstream.node are equal")
	}
	held, err := out.ask(ctx, cfg, sent)
	if err != nil {
		return nil, err
	}
	out.compare(held)
	return out, nil
}

// ask opens a stream to the origin for each node, and waits for the answers.
func (c *Comparison) ask(ctx context.Context, cfg *config.Config, sent [2][]byte) (held [2]*originAnswers, err error) {
	origins, err := relay.NewOrigins(cfg)
	if err != nil {
		return held, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var parts, asked sync.WaitGroup
	defer parts.Wait()
	defer cancel()
	parts.Go(func() { _ = origins.Run(ctx) }) // the statuses of the streams have its errors
	for i := range held {
		held[i] = &originAnswers{changed: make(chan struct{}, 1), builders: map[xds.TypeURL]*snapshot.Builder{}, held: map[xds.TypeURL]*snapshot.Snapshot{}}
		node := xds.WithFeatures(sent[i], xds.FeatureSupportsResourceInSotW, xds.FeatureTTL)
		source := origins.NewSource(xds.NewKey("compare", fmt.Sprint(i)), node, held[i], nil)
		parts.Go(func() { _ = source.Run(ctx) })
		asked.Go(func() { c.Nodes[i].Unanswered = held[i].await(ctx, source, cfg.Upstream.FirstAnswerTimeout) })
	}
	asked.Wait()
	for i := range held {
		if e := held[i].failure(); e != nil && len(c.Nodes[i].Unanswered) > 0 {
			c.Nodes[i].Error = e.Error()
		}
	}
	return held, ctx.Err()
}

// comparedTypes are the types that are compared, in the order in which they are asked for.
var comparedTypes = []xds.TypeURL{xds.ClusterType, xds.EndpointType, xds.ListenerType, xds.RouteType}

// originAnswers are what the origin has sent to a node. It is the sink of its stream.
type originAnswers struct {
	changed chan struct{} // has one slot

	mu       sync.Mutex
	builders map[xds.TypeURL]*snapshot.Builder
	held     map[xds.TypeURL]*snapshot.Snapshot
	number   uint64
	status   upstream.Status
}

// Newest implements upstream.Sink.
func (a *originAnswers) Newest(typ xds.TypeURL) *snapshot.Snapshot {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.held[typ]
}

// Update implements upstream.Sink.
func (a *originAnswers) Update(_ context.Context, u snapshot.Update) (changed bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	b := a.builders[u.Type]
	if b == nil {
		b = snapshot.NewBuilder(xds.TypeOf(u.Type))
		a.builders[u.Type] = b
	}
	changed = b.Apply(u)
	a.number++
	a.held[u.Type], _ = b.Snapshot(a.held[u.Type], a.number)
	select {
	case a.changed <- struct{}{}:
	default:
	}
	return changed, nil
}

// Status implements upstream.Sink.
func (a *originAnswers) Status(s upstream.Status) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status = s
}

func (a *originAnswers) failure() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.status.Err
}

// quietTime is how long no update may come after everything was answered.
const quietTime = 500 * time.Millisecond

// await asks for all listeners and clusters, and for the routes and endpoints that they name. It returns
// the types that the origin has not answered in time.
func (a *originAnswers) await(ctx context.Context, source *upstream.Source, timeout time.Duration) []string {
	late := time.NewTimer(timeout)
	defer late.Stop()
	for {
		interest, missing := a.wanted()
		source.SetInterest(interest)
		var quiet <-chan time.Time
		if len(missing) == 0 {
			quiet = time.After(quietTime)
		}
		select {
		case <-ctx.Done():
			return missing
		case <-late.C:
			return missing
		case <-quiet:
			return nil
		case <-a.changed:
		}
	}
}

// wanted is what to ask for after the answers so far, and which types are not answered.
func (a *originAnswers) wanted() (*snapshot.Interest, []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	names := map[xds.TypeURL][]string{}
	for _, typ := range []xds.TypeURL{xds.ListenerType, xds.ClusterType} {
		for r := range resources(a.held[typ]) {
			var any anypb.Any
			if proto.Unmarshal(r.Any(), &any) != nil {
				continue
			}
			routes, endpoints, err := fleet.References(typ, any.Value)
			if err != nil {
				continue // a resource that cannot be decoded is compared all the same
			}
			names[xds.RouteType] = append(names[xds.RouteType], routes...)
			names[xds.EndpointType] = append(names[xds.EndpointType], endpoints...)
		}
	}
	out := new(snapshot.Interest)
	var missing []string
	for _, typ := range comparedTypes {
		of := snapshot.TypeInterest{Type: typ}
		answered := true
		switch typ {
		case xds.ListenerType, xds.ClusterType:
			of.Wildcard = true
			answered = a.held[typ] != nil && a.held[typ].Answered
		default:
			of.Names = xds.NewNameSet(names[typ]...)
			answered = !slices.ContainsFunc(names[typ], func(n string) bool { return a.held[typ] == nil || !a.held[typ].Known(n) })
		}
		if !of.Empty() {
			out.Types = append(out.Types, of)
		}
		if !answered {
			missing = append(missing, terminal.ShortType(string(typ)))
		}
	}
	return out, missing
}

// resources yields the resources of a snapshot, which may be nil.
func resources(s *snapshot.Snapshot) func(yield func(*xds.Resource) bool) {
	return func(yield func(*xds.Resource) bool) {
		if s != nil {
			s.Resources(yield)
		}
	}
}

// compare fills Types.
func (c *Comparison) compare(held [2]*originAnswers) {
	for _, typ := range comparedTypes {
		byName := map[string]*snapshot.Difference{}
		at := func(name string) *snapshot.Difference {
			if byName[name] == nil {
				byName[name] = &snapshot.Difference{Name: name}
			}
			return byName[name]
		}
		for r := range resources(held[0].Newest(typ)) {
			at(r.Name).Has = r
		}
		for r := range resources(held[1].Newest(typ)) {
			at(r.Name).Offered = r
		}
		of := comparedType{Type: string(typ), Items: []compare.Difference{}}
		for _, d := range byName {
			if d.Has != nil && d.Offered != nil && d.Has.TypeURL() == d.Offered.TypeURL() && string(d.Has.Any()) == string(d.Offered.Any()) {
				of.Equal++
				continue
			}
			of.Items = append(of.Items, compare.Resources(d))
		}
		slices.SortFunc(of.Items, func(x, y compare.Difference) int { return strings.Compare(x.Name, y.Name) })
		c.Types = append(c.Types, of)
	}
}

// Complete reports whether the origin answered both nodes for all types and names.
func (c *Comparison) Complete() bool {
	return c.Nodes[0].Unanswered == nil && c.Nodes[1].Unanswered == nil
}

// Print writes what differs as text.
func (c *Comparison) Print(w io.Writer) {
	t := terminal.StyleOf(w)
	for _, n := range c.Nodes {
		keys := "key " + strings.Join(n.Keys, ", ")
		if n.Refused != "" {
			keys = "refused: " + n.Refused
		}
		fmt.Fprintf(w, "%s: node %s, %s\n", terminal.Visible(n.File), terminal.Visible(cmp.Or(n.Node, "-")), terminal.Visible(keys))
		if n.Unanswered != nil {
			fmt.Fprintf(w, "%s the origin did not answer %s in time", t.Colour(terminal.Yellow, "!"), strings.Join(n.Unanswered, ", "))
			if n.Error != "" {
				fmt.Fprintf(w, ": %s", terminal.Visible(n.Error))
			}
			fmt.Fprintln(w)
		}
	}
	differ := 0
	for _, of := range c.Types {
		differ += len(of.Items)
		fmt.Fprintf(w, "\n%s: %d equal, %d differ\n", terminal.ShortType(of.Type), of.Equal, len(of.Items))
		for _, r := range of.Items {
			fmt.Fprintf(w, "--- %s for %s\n+++ %s for %s\n", terminal.Visible(r.Name), terminal.Visible(c.Nodes[0].File), terminal.Visible(r.Name), terminal.Visible(c.Nodes[1].File))
			if r.Diff == "" {
				fmt.Fprintln(w, "no visible field differs")
			}
			terminal.Diff(w, t, r.Diff)
		}
	}
	fmt.Fprintln(w)
	same := c.Nodes[0].Refused == "" && c.Nodes[1].Refused == "" && slices.Equal(c.Nodes[0].Keys, c.Nodes[1].Keys)
	switch {
	case !c.Complete():
		fmt.Fprintln(w, "The answers are not complete.")
	case differ == 0 && same:
		fmt.Fprintln(w, "Nothing differs: the nodes can share their key.")
	case differ == 0:
		fmt.Fprintln(w, "Nothing differs: the nodes could share a key.")
	case same:
		fmt.Fprintln(w, t.Colour(terminal.Red, "The nodes share a key, but the origin answers them differently: the rule is too coarse."))
	default:
		fmt.Fprintln(w, "The origin answers the nodes differently, and they have different keys.")
	}
}
