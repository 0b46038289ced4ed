package overview

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"

	"xdsrelay/internal/admin/keystatus"
	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
)

// Bounds of an Overview for any input.
const (
	maxKeys = 24  // keys with a row of their own
	maxText = 512 // bytes of a key or an error
)

// Overview is the fleet at one moment. It has times instead of ages, so that it stays equal while
// nothing changes.
type Overview struct {
	Relay    Relay     `json:"relay"`
	Problems []Problem `json:"problems"` // the first to look at first
	Clients  int       `json:"clients"`  // streams and REST clients
	Variants Variants  `json:"variants"`
	// States counts each client once, by the worst of its types.
	States States    `json:"states"`
	Types  []TypeRow `json:"types"`
	Totals

	Keys int `json:"keys"`
	// Disconnected counts keys with clients and without a stream to an origin.
	Disconnected int `json:"disconnected"`
	// Top has the most important keys, ordered by their clients. Rest sums up all others, and is
	// absent if there are none.
	Top     []KeyRow    `json:"top"`
	Rest    *KeyRow     `json:"rest,omitempty"`
	Origins []OriginRow `json:"origins"`
}

type Relay struct {
	Name      string    `json:"name"`
	Version   string    `json:"version"`
	State     string    `json:"state"`
	Started   time.Time `json:"started"`
	InCluster bool      `json:"in_cluster"`
}

// Variants counts streams by variant.
type Variants struct {
	SotW  int `json:"sotw"`
	Delta int `json:"delta"`
	REST  int `json:"rest"`
}

// States counts clients by state.
type States struct {
	Synced      int `json:"synced"`
	Stale       int `json:"stale"`
	Unconfirmed int `json:"unconfirmed"`
	NotSent     int `json:"not_sent"`
	Nacked      int `json:"nacked"`
}

// TypeRow is a type over all streams. Types without a short name share one.
type TypeRow struct {
	Type   string `json:"type"`
	States States `json:"states"`
}

// KeyRow is a key, or the rest of them.
type KeyRow struct {
	// Key is the key as in /keys; "" for clients that have no key.
	Key string `json:"key"`
	// Cut: Key is only the beginning of a long key.
	Cut  bool `json:"cut,omitempty"`
	Keys int  `json:"keys,omitempty"` // of the rest: the number of keys

	Clients   int    `json:"clients"`
	States    States `json:"states"`
	Origin    string `json:"origin,omitempty"`
	Connected bool   `json:"connected"`
	Stale     bool   `json:"stale,omitempty"` // serves the last known good
	Resources int    `json:"resources"`
	Nacks     uint64 `json:"nacks"`
	Error     string `json:"error,omitempty"`
	// Received is when any of its resources last changed.
	Received time.Time `json:"received,omitzero"`
}

// OriginRow has what the page shows of an upstream.OriginStatus.
type OriginRow struct {
	Name        string    `json:"name"`
	Address     string    `json:"address"`
	Away        bool      `json:"away"`
	AwaySince   time.Time `json:"away_since,omitzero"`
	Reached     time.Time `json:"reached,omitzero"`
	Streams     int       `json:"streams"`
	Connections int       `json:"connections"`
	Silent      int       `json:"silent_streams"`
	LastError   string    `json:"last_error,omitempty"`
}

// In has the input of Of.
type In struct {
	Relay    Relay
	Problems []Problem
	Totals   Totals
	Clients  iter.Seq[inspect.ClientStatus]
	Keys     []keystatus.Key
	Origins  []upstream.OriginStatus
}

// add counts one client, or one type on a stream, in a state.
func (s *States) add(state string) {
	switch state {
	case inspect.StateNacked:
		s.Nacked++
	case inspect.StateStale:
		s.Stale++
	case inspect.StateUnconfirmed:
		s.Unconfirmed++
	case inspect.StateNotSent:
		s.NotSent++
	default:
		s.Synced++
	}
}

func (s *States) sum(other *States) {
	s.Synced += other.Synced
	s.Stale += other.Stale
	s.Unconfirmed += other.Unconfirmed
	s.NotSent += other.NotSent
	s.Nacked += other.Nacked
}

// Of computes the Overview.
func Of(in *In) *Overview {
	c := counting{
		Overview: Overview{Relay: in.Relay, Problems: in.Problems, Totals: in.Totals, Keys: len(in.Keys), Origins: []OriginRow{}},
		rows:     make(map[string]*KeyRow, len(in.Keys)),
		types:    make(map[string]*TypeRow),
	}
	for i := range in.Origins {
		c.Origins = append(c.Origins, originRow(&in.Origins[i]))
	}
	for i := range in.Keys {
		k := &in.Keys[i]
		c.rows[k.Key] = rowOf(k)
		if k.Disconnected() {
			c.Disconnected++
		}
	}
	for one := range in.Clients {
		c.client(&one)
	}
	c.choose()
	for _, t := range c.types {
		c.Types = append(c.Types, *t)
	}
	slices.SortFunc(c.Types, func(a, b TypeRow) int { return cmp.Compare(rank(a.Type), rank(b.Type)) })
	return &c.Overview
}

func originRow(o *upstream.OriginStatus) OriginRow {
	row := OriginRow{
		Name: o.Name, Address: o.Address, Away: o.Away, AwaySince: o.AwaySince, Reached: o.Reached,
		Streams: o.Streams, Connections: o.Connections, Silent: o.Silent,
	}
	row.LastError, _ = clip(o.LastError)
	return row
}

func rowOf(k *keystatus.Key) *KeyRow {
	row := &KeyRow{Key: k.Key, Origin: k.Upstream.Origin, Connected: k.Upstream.Connected, Nacks: k.NacksTotal}
	row.Error, _ = clip(cmp.Or(k.Refused, k.Upstream.Error))
	for i := range k.Types {
		t := &k.Types[i]
		row.Resources += t.Resources
		row.Stale = row.Stale || t.Stale
		if t.Received.After(row.Received) {
			row.Received = t.Received
		}
		if row.Origin == "" {
			row.Origin = t.Origin
		}
	}
	return row
}

type counting struct {
	Overview
	rows  map[string]*KeyRow
	types map[string]*TypeRow
}

// client counts a client. Most have one key for all types.
func (c *counting) client(s *inspect.ClientStatus) {
	c.Clients++
	switch s.Variant {
	case "sotw":
		c.Variants.SotW++
	case "delta":
		c.Variants.Delta++
	default:
		c.Variants.REST++
	}
	worst := ""
	if len(s.Types) == 0 {
		worst = inspect.StateNotSent
		c.row("").count(worst)
	}
	for i := range s.Types {
		t := &s.Types[i]
		state := t.State
		worst = inspect.Worse(worst, state)
		c.typeRow(t.Type).States.add(state)
		if slices.ContainsFunc(s.Types[:i], func(o inspect.TypeStatus) bool { return o.Key == t.Key }) {
			continue // counted with the first type of this key
		}
		for j := i + 1; j < len(s.Types); j++ {
			if s.Types[j].Key == t.Key {
				state = inspect.Worse(state, s.Types[j].State)
			}
		}
		c.row(t.Key).count(state)
	}
	c.States.add(worst)
}

func (r *KeyRow) count(state string) {
	r.Clients++
	r.States.add(state)
}

// row returns the row of a key. It adds one for a key that has just gone.
func (c *counting) row(key string) *KeyRow {
	r := c.rows[key]
	if r == nil {
		r = &KeyRow{Key: key}
		c.rows[key] = r
	}
	return r
}

// typeRow returns the row of a type. Types without a short name share one, because clients can
// invent them.
func (c *counting) typeRow(url string) *TypeRow {
	r := c.types[url]
	if r != nil {
		return r
	}
	t := xds.TypeOf(xds.TypeURL(url))
	if !t.Known() {
		if r = c.types[""]; r != nil {
			return r
		}
		url = ""
	}
	r = &TypeRow{Type: t.Label()}
	c.types[url] = r
	return r
}

// rank orders types as xds.Types does.
func rank(short string) int {
	for i, t := range xds.Types() {
		if t.Short == short {
			return i
		}
	}
	return len(xds.Types())
}

// choose selects the keys with a row of their own: first those with the most NACKs, in at most half
// of the rows, then those with the most clients.
func (c *counting) choose() {
	all := make([]*KeyRow, 0, len(c.rows))
	for _, r := range c.rows {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b *KeyRow) int {
		return cmp.Or(cmp.Compare(b.States.Nacked, a.States.Nacked), bySize(a, b))
	})
	nacked := 0
	for nacked < min(len(all), maxKeys/2) && all[nacked].States.Nacked > 0 {
		nacked++
	}
	slices.SortFunc(all[nacked:], bySize)
	c.Top = make([]KeyRow, 0, min(len(all), maxKeys))
	for i, r := range all {
		if i < maxKeys {
			c.Top = append(c.Top, *r)
			continue
		}
		if c.Rest == nil {
			c.Rest = &KeyRow{Connected: true}
		}
		c.Rest.join(r)
	}
	slices.SortFunc(c.Top, func(a, b KeyRow) int { return bySize(&a, &b) })
	for i := range c.Top {
		c.Top[i].Key, c.Top[i].Cut = clip(c.Top[i].Key)
	}
}

func bySize(a, b *KeyRow) int {
	return cmp.Or(cmp.Compare(b.Clients, a.Clients), cmp.Compare(a.Key, b.Key))
}

func (r *KeyRow) join(other *KeyRow) {
	if r.Keys == 0 {
		r.Origin = other.Origin
	} else if r.Origin != other.Origin {
		r.Origin = ""
	}
	r.Keys++
	r.Clients += other.Clients
	r.States.sum(&other.States)
	r.Resources += other.Resources
	r.Nacks += other.Nacks
	r.Connected = r.Connected && other.Connected
	r.Stale = r.Stale || other.Stale
	if other.Received.After(r.Received) {
		r.Received = other.Received
	}
}

// clip cuts a text to maxText bytes, and reports whether it was longer.
func clip(s string) (string, bool) {
	if len(s) <= maxText {
		return s, false
	}
	return strings.ToValidUTF8(s[:maxText], ""), true
}
