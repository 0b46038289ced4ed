package compare

import (
	"encoding/json"
	"strings"

	"github.com/aymanbagabas/go-udiff"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"xdsrelay/internal/admin/jsonyaml"
	"xdsrelay/internal/telemetry/redact"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// MaxCompared bounds a resource whose content is shown, in bytes, because its cost is only known
// afterwards. MaxShown bounds its JSON.
const (
	MaxCompared = 1 << 20
	MaxShown    = 4 << 20
)

// Difference is a resource that a client has in another version, or not at all.
type Difference struct {
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

// Resources compares two resources, without their secrets.
func Resources(d *snapshot.Difference) Difference {
	out := Difference{Name: d.Name, Offered: comparableJSON(d.Offered), Has: comparableJSON(d.Has), OfferedNotHeld: d.OfferedGone, HasNotHeld: d.HasGone}
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
	if r == nil || r.Size() <= MaxCompared {
		if b := JSON(r); len(b) <= MaxShown {
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

// JSON returns a resource as JSON without secrets; nil for none.
func JSON(r *xds.Resource) json.RawMessage {
	if r == nil {
		return nil
	}
	said := func(what string) json.RawMessage {
		b, _ := json.Marshal(map[string]any{"cannot_be_shown": what, "bytes": r.Size()}) // strings and numbers
		return b
	}
	a := new(anypb.Any)
	if err := proto.Unmarshal(r.Any(), a); err != nil {
		return said("the resource is not a google.protobuf.Any")
	}
	b, err := redact.JSON(a)
	if err != nil {
		return said(err.Error())
	}
	return b
}
