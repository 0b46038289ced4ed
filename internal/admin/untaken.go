package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"xdsrelay/internal/fanout"
	"xdsrelay/internal/orchestrator"
)

// What is shown of what a node has not taken is bounded: so many resources of a
// type, and so many bytes in all.
const (
	maxDifferences     = 50
	maxDifferenceBytes = 4 << 20
)

// untaken is what a client refused, or does not have yet, of a type.
type untaken struct {
	Node   string    `json:"node"`
	Stream uint64    `json:"stream"`
	Key    string    `json:"key"`
	Type   string    `json:"type"`
	Short  string    `json:"short,omitempty"`
	State  string    `json:"state"`
	Since  time.Time `json:"since"`
	// Version is what it refused or is to take, AckedVersion what it took last.
	Version      string       `json:"version"`
	AckedVersion string       `json:"acked_version,omitempty"`
	Nack         *fanout.Nack `json:"nack,omitempty"`
	Unsent       bool         `json:"unsent,omitempty"` // it was not sent yet
	// Resources are those that differ. NotHeld: so much came since that nobody knows
	// which. More: there are so many besides.
	Resources []differing `json:"resources"`
	NotHeld   bool        `json:"not_held_any_more,omitempty"`
	More      int         `json:"more,omitempty"`
}

// differing is a resource that the client has otherwise, or not at all.
type differing struct {
	Name string `json:"name"`
	// Offered is what it refused or is to take, Has what it has; null for none, or if
	// it is not held any more.
	Offered        json.RawMessage `json:"offered"`
	Has            json.RawMessage `json:"has"`
	OfferedNotHeld bool            `json:"offered_not_held_any_more,omitempty"`
	HasNotHeld     bool            `json:"has_not_held_any_more,omitempty"`
	// Diff leads from what it has to what it was offered, line by line of their YAML.
	Diff string `json:"diff,omitempty"`
}

// untaken is what a node refused, and what it does not have yet.
func (s *Server) untaken(r *http.Request) (int, any) {
	id := r.PathValue("node")
	out := struct {
		Items []untaken `json:"items"`
	}{Items: []untaken{}}
	room := maxDifferenceBytes
	for _, u := range s.opts.Clients.Untaken(id) {
		out.Items = append(out.Items, s.compare(&u, &room))
	}
	if len(out.Items) == 0 && !s.isThere(id) {
		return fail(http.StatusNotFound, fmt.Sprintf("no client has the node id %q", id))
	}
	return http.StatusOK, out
}

func (s *Server) isThere(node string) bool {
	for c := range s.opts.Clients.ClientsAfter(0) {
		if c.Node == node {
			return true
		}
	}
	return false
}

func (s *Server) compare(u *fanout.Untaken, room *int) untaken {
	out := untaken{
		Node: u.Node, Stream: u.Stream, Key: u.Key.String(), Type: string(u.Type.URL), Short: u.Type.Short,
		State: u.State, Since: u.Since, Version: u.Version, AckedVersion: u.AckedVersion, Nack: u.Nack, Unsent: u.Unsent,
		Resources: []differing{},
	}
	all, more, known := s.opts.Keys.Differences(u, maxDifferences)
	out.NotHeld, out.More = !known, more
	for i := range all {
		if *room <= 0 {
			out.More += len(all) - i
			break
		}
		d := differ(&all[i])
		*room -= len(d.Offered) + len(d.Has) + len(d.Diff)
		out.Resources = append(out.Resources, d)
	}
	return out
}

func differ(d *orchestrator.Difference) differing {
	out := differing{Name: d.Name, Offered: shown(d.Offered), Has: shown(d.Has), OfferedNotHeld: d.OfferedGone, HasNotHeld: d.HasGone}
	if d.OfferedGone || d.HasGone {
		return out
	}
	out.Diff = lineDiff(yamlLines(out.Has), yamlLines(out.Offered))
	return out
}

// yamlLines are the lines of a message as YAML; none of none.
func yamlLines(message json.RawMessage) []string {
	if message == nil {
		return nil
	}
	b, err := asYAML(message)
	if err != nil {
		return []string{string(message)}
	}
	return slices.Collect(strings.Lines(string(b)))
}
