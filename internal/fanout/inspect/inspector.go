package inspect

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"sync/atomic"
	"time"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// Client is a stream, or what a client polls by REST. Its methods may be called from any
// goroutine. Each takes the client's lock for as long as it takes to copy a few words.
type Client interface {
	// ID numbers the clients of a server in the order in which they came.
	ID() uint64
	// NodeID is empty before the first request.
	NodeID() string
	// UserAgent is empty before the first request.
	UserAgent() UserAgent
	Status(*Survey) ClientStatus
	// AppendTypeStates appends the standing of each type that is wanted.
	AppendTypeStates(look *Survey, wanted func(xds.Key, xds.TypeURL) bool, to []TypeState) []TypeState
	AppendUnacknowledged(look *Survey, to []Unacknowledged) []Unacknowledged
	// Config returns false before the first request.
	Config() (ClientConfig, bool)
}

// Inspector lists the clients of a server.
type Inspector struct {
	all     func() []Client
	waiting atomic.Pointer[map[KeyType]Waiting]
}

// New makes an Inspector of the clients that all returns.
func New(all func() []Client) *Inspector { return &Inspector{all: all} }

// after returns the clients with a higher ID, in the order of their IDs.
func (i *Inspector) after(id uint64) []Client {
	out := slices.DeleteFunc(i.all(), func(c Client) bool { return c.ID() <= id })
	slices.SortFunc(out, func(a, b Client) int { return cmp.Compare(a.ID(), b.ID()) })
	return out
}

// Clients returns the status of all clients, by node and ID.
func (i *Inspector) Clients() []ClientStatus {
	out := slices.Collect(i.ClientsAfter(0))
	slices.SortFunc(out, func(a, b ClientStatus) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Stream, b.Stream))
	})
	return out
}

// ClientsAfter yields the status of the clients with a higher ID, in the order of their IDs.
// It reads a client when the caller asks for the next one: a page costs no more than its length.
func (i *Inspector) ClientsAfter(id uint64) iter.Seq[ClientStatus] {
	return func(yield func(ClientStatus) bool) {
		look, all := newSurvey(), i.after(id)
		nodes := make(map[string][]Client, len(all))
		for _, c := range all {
			nodes[c.NodeID()] = append(nodes[c.NodeID()], c)
		}
		for _, c := range all {
			s := c.Status(look)
			if same := nodes[s.Node]; s.Node != "" && len(same) > 1 {
				look.markOlder(&s, same)
			}
			if !yield(s) {
				return
			}
		}
	}
}

// subscribed is what a host requests of a type under a node's id.
type subscribed struct {
	KeyType
	host  string
	names uint64
}

// markOlder marks the types of a client that a newer client of its node requests as well, on another
// connection. same has the clients of the node.
func (look *Survey) markOlder(s *ClientStatus, same []Client) {
	if look.node != s.Node { // several streams of a node often follow each other
		look.node, look.states = s.Node, nil
		for _, c := range same {
			look.states = c.AppendTypeStates(look, func(xds.Key, xds.TypeURL) bool { return true }, look.states)
		}
	}
	of := func(t *TypeState) subscribed { return subscribed{KeyType{t.Key, t.Type}, t.Host, t.Names} }
	newest := make(map[subscribed]*TypeState, len(look.states))
	for n := range look.states { // in the order of their IDs
		newest[of(&look.states[n])] = &look.states[n]
	}
	for n := range look.states {
		t := &look.states[n]
		at := slices.IndexFunc(s.Types, func(o TypeStatus) bool { return t.Stream == s.Stream && o.Type == string(t.Type) })
		if at >= 0 {
			s.Types[at].Older = newest[of(t)].Conn != t.Conn
		}
	}
}

// TypeStates yields the states of all clients in the types that are wanted.
func (i *Inspector) TypeStates(wanted func(xds.Key, xds.TypeURL) bool) iter.Seq[TypeState] {
	return func(yield func(TypeState) bool) {
		look := newSurvey()
		var found []TypeState
		for _, c := range i.all() {
			found = c.AppendTypeStates(look, wanted, found[:0])
			for _, f := range found {
				if !yield(f) {
					return
				}
			}
		}
	}
}

// Unacknowledged yields the IDs of a node's clients that are higher than after, in order, each with
// what the client did not acknowledge. It reads a client when the caller asks for the next one. It
// reuses the slices that it yields.
func (i *Inspector) Unacknowledged(node string, after uint64) iter.Seq2[uint64, []Unacknowledged] {
	return func(yield func(uint64, []Unacknowledged) bool) {
		look := newSurvey()
		var found []Unacknowledged
		for _, c := range i.after(after) {
			if c.NodeID() != node {
				continue
			}
			found = c.AppendUnacknowledged(look, found[:0])
			for n := range found {
				found[n].collect()
			}
			if !yield(c.ID(), found) {
				return
			}
		}
	}
}

// ClientConfigs returns all clients whose nodes are known, by node and ID.
func (i *Inspector) ClientConfigs() []ClientConfig {
	all := i.all()
	out := make([]ClientConfig, 0, len(all))
	for _, c := range all {
		if config, ok := c.Config(); ok {
			out = append(out, config)
		}
	}
	slices.SortFunc(out, func(a, b ClientConfig) int {
		return cmp.Or(cmp.Compare(a.Node.ID, b.Node.ID), cmp.Compare(a.Stream, b.Stream))
	})
	return out
}

// countEvery is how often clients are counted by state for the metrics. A count reads each client,
// so it is not done at each scrape.
const countEvery = 10 * time.Second

var metricOf = map[string]telemetry.ClientState{
	StateSynced: telemetry.ClientSynced, StateUnconfirmed: telemetry.ClientUnconfirmed, StateNotSent: telemetry.ClientNotSent, StateStale: telemetry.ClientStale, StateNacked: telemetry.ClientNacked,
}

// Run counts the clients by state, for the metrics, until ctx ends.
func (i *Inspector) Run(ctx context.Context, m *telemetry.Metrics) {
	tick := time.Tick(countEvery)
	for {
		select {
		case <-tick:
			m.SetClientStates(i.Count())
		case <-ctx.Done():
			return
		}
	}
}

// waitingFor is how long a client waits for the origin's answer before that is a problem. gRPC and
// Envoy give up after 15 s.
const waitingFor = 30 * time.Second

type KeyType struct {
	Key  xds.Key
	Type xds.TypeURL
}

// Waiting says how many clients have waited for more than 30 s for the origin's answer.
type Waiting struct {
	Clients int
	Since   time.Time // since when the first of them has waited
}

// Waiting returns the types of keys with such clients, as of the last Count. The caller must not
// change the map.
func (i *Inspector) Waiting() map[KeyType]Waiting {
	if w := i.waiting.Load(); w != nil {
		return *w
	}
	return nil
}

// Count counts the clients by type and state, and those of Waiting.
func (i *Inspector) Count() telemetry.ClientStates {
	all, waiting := telemetry.NewClientStates(), make(map[KeyType]Waiting)
	before := time.Now().Add(-waitingFor)
	for s := range i.TypeStates(func(xds.Key, xds.TypeURL) bool { return true }) {
		waits := !s.WaitingSince.IsZero() && s.WaitingSince.Before(before)
		all.Count(s.Type, telemetry.ClientType{State: metricOf[s.State], Oversized: s.Oversized, Waiting: waits && s.State == StateNotSent})
		if waits {
			of := KeyType{s.Key, s.Type}
			w := waiting[of]
			if w.Clients++; w.Clients == 1 || s.WaitingSince.Before(w.Since) {
				w.Since = s.WaitingSince
			}
			waiting[of] = w
		}
	}
	i.waiting.Store(&waiting)
	return all
}
