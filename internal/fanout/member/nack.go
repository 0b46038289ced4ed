package member

import (
	"log/slog"
	"regexp"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"xdsrelay/internal/telemetry/redact"
	"xdsrelay/internal/xds"
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

// maxMessage bounds what is kept of a client's message, and maxRead what is read of it, in bytes
// (P17). Envoy's messages are 4 KiB at most.
const (
	maxMessage = 1 << 10
	maxRead    = 8 << 10
)

// protobufWord is what protobuf begins a printed message with, such as "goo.gle/debugproto  ".
var protobufWord = regexp.MustCompile(`goo\.gle/debug\w*\s*`)

// NackMessage returns what is kept and shown of a client's message. Envoy quotes the whole resource
// that breaks a constraint, so nothing is kept of a message about a Secret. In other messages,
// NackMessage redacts what looks like a secret: a cluster may have a key inline. It removes the word
// with which protobuf begins a printed message, since that differs from process to process: the
// same fault has the same text for all clients.
func NackMessage(t xds.Type, said []byte) string {
	if t.Secret {
		return "(not shown: it may contain the Secret)"
	}
	// Redacted before it is cut, since half of a secret may not look like one.
	text := protobufWord.ReplaceAllLiteralString(string(said[:min(len(said), maxRead)]), "")
	return ends(redact.Text(text), maxMessage)
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
func LogNack(l *slog.Logger, of Member, typ xds.TypeURL, n *Nack, nonce string) {
	l.Warn("client rejected a response", "node", n.Node, "key", of.Key().String(), "type", typ,
		"version", n.Version, "nonce", nonce, "code", codes.Code(n.Code).String(), "reason", n.Message)
}
