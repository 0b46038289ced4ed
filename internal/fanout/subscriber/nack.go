package subscriber

import (
	"bytes"
	"hash/maphash"
	"log/slog"
	"regexp"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
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

	// maxRead is what is read of a message.
	maxRead = 8 << 10
)

// protobufWord is what protobuf begins a printed message with, such as "goo.gle/debugproto  ".
var protobufWord = regexp.MustCompile(`goo\.gle/debug\w*\s*`)

// MessageRead returns what is read of a client's message: of one over 8 KiB, what is before the last
// blank of these. So no word is cut, since half of a secret would not be recognised.
func MessageRead(said []byte) []byte {
	if len(said) <= maxRead {
		return said
	}
	return said[:max(0, bytes.LastIndexAny(said[:maxRead+1], " \t\r\n"))]
}

// NackMessage returns what is kept and shown of a client's message about a response that m was
// offered; nil m: about none. Envoy quotes the whole resource that breaks a constraint, so nothing
// is kept of a message about a Secret. In other messages, NackMessage redacts what is hidden in the
// resources of the response, and what looks like a secret: a cluster may have a key inline. It
// removes the word with which protobuf begins a printed message, since that differs from process to
// process: the same fault has the same text for all clients. It waits while other messages are
// redacted, for at most maxWait.
func NackMessage(t xds.Type, said []byte, s Subscriber, offer *snapshot.Offer) string {
	if t.Secret {
		return "(not shown: it may contain the Secret)"
	}
	text := protobufWord.ReplaceAllLiteralString(string(MessageRead(said)), "")
	var resources []*xds.Resource
	all := false
	if s != nil && text != "" {
		resources, all = s.Offered(offer, maxQuotedNames)
	}
	return messages.redact(text, resources, all)
}

// redactor redacts messages. One may take some tens of milliseconds of CPU, and clients decide how
// many there are. So all clients together use at most one core: the redactor redacts one message at
// a time. Equal messages about equal resources, as a fleet sends them, are redacted once.
type redactor struct {
	slot chan struct{} // holds a value while a message is redacted
	// last are the last maxRedacted results, by redactedKey. Each has at most maxMessage bytes, so
	// they have 128 KiB in all.
	last *lru.Cache[uint64, string]
}

const (
	maxRedacted = 128
	// maxWait is how long a message waits for its turn. The stream's next request waits as long.
	maxWait = 2 * time.Second
)

// notRedacted replaces a message that had no turn.
const notRedacted = "(not shown: too many clients reject responses at once)"

var messages = newRedactor()

func newRedactor() *redactor {
	last, err := lru.New[uint64, string](maxRedacted)
	if err != nil {
		panic(err) // maxRedacted is positive
	}
	return &redactor{slot: make(chan struct{}, 1), last: last}
}

// redact redacts and shortens a message that may quote the resources, or others if all is false.
func (r *redactor) redact(text string, resources []*xds.Resource, all bool) string {
	key := redactedKey(text, resources, all)
	if out, ok := r.last.Get(key); ok {
		return out
	}
	select {
	case r.slot <- struct{}{}:
	case <-time.After(maxWait):
		return notRedacted
	}
	defer func() { <-r.slot }()
	out, ok := r.last.Get(key) // another client may have sent it meanwhile
	if !ok {
		quoted, all := quotable(text, resources, all)
		// Redacted before it is shortened, since half of a secret may not look like one.
		out = ends(redact.Quoting(text, quoted, all), maxMessage)
		r.last.Add(key, out)
	}
	return out
}

var redactedSeed = maphash.MakeSeed()

// redactedKey is a hash of a message, the resources that it may quote, and whether these are all.
func redactedKey(text string, resources []*xds.Resource, all bool) uint64 {
	var h maphash.Hash
	h.SetSeed(redactedSeed)
	maphash.WriteComparable(&h, all)
	maphash.WriteComparable(&h, text)
	for _, r := range resources {
		maphash.WriteComparable(&h, r.Name)
		maphash.WriteComparable(&h, r.Version)
	}
	return h.Sum64()
}

// quotable decodes the resources that a message may quote, those first that it names. all is false
// if some are left out.
func quotable(text string, resources []*xds.Resource, all bool) ([]*anypb.Any, bool) {
	var out []*anypb.Any
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
