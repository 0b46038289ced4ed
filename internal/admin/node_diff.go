package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/aymanbagabas/go-udiff"

	"xdsrelay/internal/admin/jsonyaml"
	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Bounds of a page of /diff/{node}, and of a row of /nacks?diff=true; diffTime applies too.
const (
	maxDifferences     = 50
	maxDifferenceBytes = 4 << 20
	itemCost           = 2 << 10 // least cost of an item
	// maxCompared bounds a resource whose content is shown, in bytes, because its cost is only
	// known afterwards.
	maxCompared = 1 << 20
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
	// Resources are those that differ. NotHeld: the relay no longer holds enough to know them. More
	// counts further resources, or names that may differ.
	Resources []DifferingResource `json:"resources"`
	NotHeld   bool                `json:"not_held_any_more,omitempty"`
	// Awaits are names that it requests and the origin has not answered, "*" for the wildcard. Then
	// there is nothing to compare.
	Awaits []string `json:"awaits,omitempty"`
	More   int      `json:"more,omitempty"`
	// NoKey is the reason why the type has no key and gets no response.
	NoKey string `json:"no_key,omitempty"`
}

// DifferingResource is a resource that the client has in another version, or not at all.
type DifferingResource struct {
	Name string `json:"name"`
	// Offered is what the client NACKed or is to be sent, Has what it has; null for none, or if
	// the relay no longer holds it.
	Offered        json.RawMessage `json:"offered"`
	Has            json.RawMessage `json:"has"`
	OfferedNotHeld bool            `json:"offered_not_held_any_more,omitempty"`
	HasNotHeld     bool            `json:"has_not_held_any_more,omitempty"`
	// Diff is a line diff of their YAML, from Has to Offered.
	Diff string `json:"diff,omitempty"`
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
		State: u.State, Since: u.Since, Version: u.Version, AckedVersion: u.AckedVersion, Nack: u.Nack, Unsent: u.Unsent,
		Resources: []DifferingResource{}, NoKey: u.NoKey,
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
func (b *budget) differ(all []snapshot.Difference) (out []DifferingResource, more int) {
	out = []DifferingResource{}
	for i := range all {
		if b.spent() {
			return out, len(all) - i
		}
		d := Differ(&all[i])
		b.bytes -= len(d.Offered) + len(d.Has) + len(d.Diff)
		out = append(out, d)
	}
	return out, 0
}

// Differ compares two resources, without their secrets.
func Differ(d *snapshot.Difference) DifferingResource {
	out := DifferingResource{Name: d.Name, Offered: comparableJSON(d.Offered), Has: comparableJSON(d.Has), OfferedNotHeld: d.OfferedGone, HasNotHeld: d.HasGone}
	if d.OfferedGone || d.HasGone {
		return out
	}
	// Clients of this API write their own header lines.
	_, out.Diff, _ = strings.Cut(udiff.Unified("", "", yamlText(out.Has), yamlText(out.Offered)), "+++ \n")
	return out
}

// comparableJSON returns a resource as JSON. For one that is too large it returns only the size and
// the version.
func comparableJSON(r *xds.Resource) json.RawMessage {
	if r == nil || r.Size() <= maxCompared {
		if b := shown(r); len(b) <= maxDifferenceBytes {
			return b
		}
	}
	b, _ := json.Marshal(struct {
		What    string `json:"cannot_be_shown"`
		Bytes   int64  `json:"bytes"`
		Version string `json:"version"`
	}{"the resource is too large for a diff; relay dump prints it", r.Size(), r.Version.String()}) // strings and a number
	return b
}

// yamlText returns a message as YAML, and an empty text for no message.
func yamlText(message json.RawMessage) string {
	if message == nil {
		return ""
	}
	b, err := jsonyaml.YAML(message)
	if err != nil {
		return string(message)
	}
	return string(b)
}
