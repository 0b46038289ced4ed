package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"xdsrelay/internal/admin/compare"
	"xdsrelay/internal/admin/jsonyaml"
	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/xds/snapshot"
)

// Bounds of a page of /diff/{node}, and of a row of /nacks?diff=true; diffTime applies too.
const (
	maxDifferences     = 50
	maxDifferenceBytes = compare.MaxShown
	itemCost           = 2 << 10 // least cost of an item
)

// Unacknowledged is a type of a client that NACKed it, or does not have it yet.
type Unacknowledged struct {
	Node   string    `json:"node"`
	Stream uint64    `json:"stream"`
	Key    string    `json:"key"`
	Type   string    `json:"type"`
	Short  string    `json:"short,omitempty"`
	State  string    `json:"state"`
	Since  time.Time `json:"since"`
	// Version is what it NACKed or is to be sent; AckedVersion is what it accepted last.
	Version      string           `json:"version"`
	AckedVersion string           `json:"acked_version,omitempty"`
	Nack         *subscriber.Nack `json:"nack,omitempty"`
	Unsent       bool             `json:"unsent,omitempty"` // the version was not sent yet
	// Sending is how much of a response the client has received, while the relay sends it.
	Sending *inspect.Sending `json:"sending,omitempty"`
	// Resources are those that differ. NotHeld: the relay no longer holds enough to know them. More
	// counts further resources, or names that may differ.
	Resources []compare.Difference `json:"resources"`
	NotHeld   bool                 `json:"not_held_any_more,omitempty"`
	// Awaits are names that it requests and the origin has not answered, "*" for the wildcard. Then
	// there is nothing to compare.
	Awaits []string `json:"awaits,omitempty"`
	More   int      `json:"more,omitempty"`
	// NoKey is the reason why the type has no key and gets no response.
	NoKey string `json:"no_key,omitempty"`
}

// nodeDiff answers with what a node NACKed and what it does not have yet. A page ends after a whole
// stream.
func (s *Server) nodeDiff(r *http.Request) (int, any) {
	limit, after, err := pageOf(r)
	number := uint64(0)
	if err == nil && after != "" {
		if number, err = strconv.ParseUint(after, 10, 64); err != nil {
			err = errPageToken
		}
	}
	if err != nil {
		return fail(http.StatusBadRequest, err.Error())
	}
	id := r.PathValue("node")
	out := page{Items: []json.RawMessage{}}
	b := newBudget()
	known := after != ""
	for stream, of := range s.opts.Clients.Unacknowledged(id, number) {
		if len(out.Items) >= limit || b.spent() {
			out.Next = pageToken(r, strconv.FormatUint(number, 10))
			break
		}
		known, number = true, stream
		for i := range of {
			item, err := jsonyaml.JSON(s.compare(&of[i], b))
			if err != nil {
				return fail(http.StatusInternalServerError, fmt.Sprintf("stream %d: cannot be encoded: %v", stream, err))
			}
			out.Items = append(out.Items, item)
			b.bytes -= itemCost
		}
	}
	if !known {
		return unknownNode(id)
	}
	return http.StatusOK, out
}

// budget is the remaining cost of a page or a row.
type budget struct {
	bytes int
	until time.Time
}

func newBudget() *budget {
	return &budget{bytes: maxDifferenceBytes, until: time.Now().Add(diffTime)}
}

func (b *budget) spent() bool { return b.bytes <= 0 || time.Now().After(b.until) }

func (s *Server) compare(u *inspect.Unacknowledged, b *budget) Unacknowledged {
	out := Unacknowledged{
		Node: u.Node, Stream: u.Stream, Key: u.Key.String(), Type: string(u.Type.URL), Short: u.Type.Short,
		State: u.State, Since: u.Since, Version: u.Version, AckedVersion: u.AckedVersion, Nack: u.Nack, Unsent: u.Unsent, Sending: u.Sending,
		Resources: []compare.Difference{}, NoKey: u.NoKey,
	}
	if u.NoKey != "" {
		return out
	}
	if u.Unanswered != nil {
		out.Awaits = u.Unanswered[:min(len(u.Unanswered), maxDifferences)]
		out.More = len(u.Unanswered) - len(out.Awaits)
		return out
	}
	all, more, known := s.opts.Keys.Differences(u, maxDifferences)
	out.Resources, out.More = b.differ(all)
	out.NotHeld, out.More = !known, out.More+more
	return out
}

// differ compares resources until the budget is spent. It returns how many further ones there are.
func (b *budget) differ(all []snapshot.Difference) (out []compare.Difference, more int) {
	out = []compare.Difference{}
	for i := range all {
		if b.spent() {
			return out, len(all) - i
		}
		d := compare.Resources(&all[i])
		b.bytes -= len(d.Offered) + len(d.Has) + len(d.Diff)
		out = append(out, d)
	}
	return out, 0
}
