package fanout

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"

	"golang.org/x/time/rate"

	"xdsrelay/internal/xds"
)

// Lines of log that clients can cause at will: what a restart of a few hundred
// of them needs, and then what a person can still read. All of them are counted
// as well, by their reason.
const (
	sparingBurst = 500
	sparingRate  = 20 // a second
)

// sparing bounds such lines.
type sparing struct {
	rate *rate.Limiter
	left atomic.Int64
}

func newSparing() *sparing { return &sparing{rate: rate.NewLimiter(sparingRate, sparingBurst)} }

// allow reports whether a line may be written, and how many were left out
// before it.
func (s *sparing) allow() (left int64, ok bool) {
	if !s.rate.Allow() {
		s.left.Add(1)
		return 0, false
	}
	return s.left.Swap(0), true
}

// line writes such a line, with how many were left out before it, if any were.
func (s *sparing) line(log *slog.Logger, level slog.Level, what string, args ...any) {
	ctx := context.Background()
	if !log.Enabled(ctx, level) {
		return
	}
	left, ok := s.allow()
	if !ok {
		return
	}
	if left > 0 {
		args = append(args, "left_out", left)
	}
	log.Log(ctx, level, what, args...)
}

// maxNodeText is how much of a node's id is logged and kept of whom was refused: an id
// may be as long as its node.
const maxNodeText = 256

// of notes whose node it is that is refused, of which nothing was made yet.
func (r *Refusal) of(node []byte) {
	r.node = strings.Clone(short(xds.NodeIDOf(node), maxNodeText))
}

// whose says for a line which client it is about: of its node what is known, and
// the account that limits per peer count it by where that is more than the address.
func whose(node, peer, account string) (args []any) {
	if node != "" {
		args = append(args, "node", short(node, maxNodeText))
	}
	args = append(args, "peer", peer)
	if account != host(peer) {
		args = append(args, "account", account)
	}
	return args
}
