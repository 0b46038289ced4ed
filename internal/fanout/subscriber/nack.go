package subscriber

import (
	"log/slog"
	"regexp"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"xdsrelay/internal/telemetry/redact"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Nack is a client's NACK (P17).
type Nack struct {
	Version string `json:"version"` // of the rejected response
	Code    int32  `json:"code"`
	Message string `json:"message"` // bounded
	Node    string `json:"node"`    // id
	// At is when it came; Gen is the generation of the response.
	At  time.Time `json:"at"`
	Gen uint64    `json:"-"`
}

// The bounds of a message (P17), in bytes: what is kept of it, and the resources that are
// searched for secrets, which it may quote. Envoy's messages are 4 KiB at most.
const (
	maxMessage     = 1 << 10
	maxQuotedBytes = 256 << 10
	maxQuotedNames = 4096

	// MaxRead is what is read of a message.
	MaxRead = 8 << 10
)

// protobufWord is what protobuf begins a printed message with, such as "goo.gle/debugproto  ".
var protobufWord = regexp.MustCompile(`goo\.gle/debug\w*\s*`)

// NackMessage returns what is kept and shown of a client's message about a response that m was
// offered; nil m: about none. Envoy quotes the whole resource that breaks a constraint, so nothing
// is kept of a message about a Secret. In other messages, NackMessage redacts what is hidden in the
// resources of the response, and what looks like a secret: a cluster may have a key inline. It
// removes the word with which protobuf begins a printed message, since that differs from process to
// process: the same fault has the same text for all clients.
func NackMessage(t xds.Type, said []byte, s Subscriber, offer *snapshot.Offer) string {
	if t.Secret {
		return "(not shown: it may contain the Secret)"
	}
	// Redacted before it is cut, since half of a secret may not look like one.
	text := protobufWord.ReplaceAllLiteralString(string(said[:min(len(said), MaxRead)]), "")
	var quoted []*anypb.Any
	all := false
	if s != nil && text != "" {
		quoted, all = quotable(text, s, offer)
	}
	return ends(redact.Quoting(text, quoted, all), maxMessage)
}

// quotable returns the resources of a response that a message may quote, those first that it names,
// and whether these are all.
func quotable(text string, s Subscriber, offer *snapshot.Offer) (out []*anypb.Any, all bool) {
	resources, all := s.Offered(offer, maxQuotedNames)
	left := int64(maxQuotedBytes)
	for _, named := range []bool{true, false} {
		for _, r := range resources {
			if strings.Contains(text, r.Name) != named {
				continue
			}
			if left -= r.Size(); left < 0 {
				return out, false
			}
			a := new(anypb.Any)
			if proto.Unmarshal(r.Any(), a) != nil {
				all = false
				continue
			}
			out = append(out, a)
		}
	}
	return out, all
}

// ends shortens a text to n bytes. It keeps both ends, since Envoy writes the resource first
// and the reason last.
func ends(text string, n int) string {
	const gap = "…"
	if len(text) <= n {
		return text
	}
	head := (n - len(gap)) / 2
	tail := len(text) - (n - len(gap) - head)
	return strings.ToValidUTF8(text[:head], "") + gap + strings.ToValidUTF8(text[tail:], "")
}

// LogNack logs a client's NACK. Its message is redacted already (NackMessage).
func LogNack(l *slog.Logger, of Subscriber, typ xds.TypeURL, n *Nack, nonce string) {
	l.Warn("client rejected a response", "node", n.Node, "key", of.Key().String(), "type", typ,
		"version", n.Version, "nonce", nonce, "code", codes.Code(n.Code).String(), "reason", n.Message)
}
