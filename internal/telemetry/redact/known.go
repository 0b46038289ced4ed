package redact

import (
	"crypto/sha256"
	"strings"

	lru "github.com/hashicorp/golang-lru/v2"
)

// Ten thousand clients that refuse the same say the same, and what is kept of it is
// logged and shown again. So texts of some length are looked at once while they are
// among the last ones: known by their hash, since a text itself may be a secret.
const (
	maxKnown  = 256
	longText  = 512      // bytes; shorter ones are looked at again
	hugeText  = 16 << 10 // longer ones are not kept
	sizeKnown = sha256.Size
)

// memory has what became of texts.
type memory struct {
	*lru.Cache[[sizeKnown]byte, string]
}

var known = memory{newKnown()}

func newKnown() *lru.Cache[[sizeKnown]byte, string] {
	c, err := lru.New[[sizeKnown]byte, string](maxKnown)
	if err != nil {
		panic(err) // of a constant that is no size
	}
	return c
}

func (m memory) text(s string) string {
	if len(s) < longText || len(s) > hugeText {
		return redacted(s)
	}
	sum := sha256.Sum256([]byte(s))
	if out, ok := m.Get(sum); ok {
		return out
	}
	out := redacted(s)
	m.Add(sum, strings.Clone(out)) // not a piece of something large
	return out
}
