package refusal

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"xdsrelay/internal/telemetry"
)

// MaxNode bounds how much of a node's id is logged and kept of a client that was refused, in
// bytes: an id may be as long as its node.
const MaxNode = 256

// Client identifies a client in a log line.
type Client struct {
	Node string // id; empty: not known
	Peer string // remote address
	// Identity is what the client's certificate proves (listener.Caller); empty without one.
	Identity string
}

// Attrs returns the attributes of a log line about the client.
func (c Client) Attrs() (args []any) {
	if c.Node != "" {
		args = append(args, "node", Short(c.Node, MaxNode))
	}
	args = append(args, "peer", c.Peer)
	if c.Identity != "" {
		args = append(args, "identity", c.Identity)
	}
	return args
}

// Log logs the refusals of a server and remembers those of the last minute.
type Log struct {
	log     *slog.Logger
	metrics *telemetry.Metrics
	recent  recent
}

func NewLog(l *slog.Logger, m *telemetry.Metrics) *Log { return &Log{log: l, metrics: m} }

// Note logs a stream or poll that was refused or ended, and remembers it. A planned end, of
// which there may be thousands in a minute, is logged at level debug and not remembered.
func (l *Log) Note(what string, r *Refusal, c Client) {
	c.Node = strings.Clone(Short(cmp.Or(c.Node, r.Node), MaxNode))
	level := slog.LevelInfo
	if r.Reason.Planned() {
		level = slog.LevelDebug
	} else {
		l.recent.note(r, c.Node, time.Now())
	}
	args := append(c.Attrs(), "reason", string(r.Reason), "code", r.Code.String())
	if r.Key != "" { // the error is logged once for the key
		args = append(args, "key", r.Key)
	} else {
		args = append(args, "error", r.Err)
	}
	l.log.Log(context.Background(), level, what, args...)
}

// NoteConnection logs, counts and remembers that a connection of a listener failed or waits before
// its first stream. what is the message of the log line. An empty peer is not known.
func (l *Log) NoteConnection(what string, reason telemetry.Reason, listener, peer string, err error) {
	r := Refusal{Reason: reason, Err: fmt.Errorf("%s: %w", listener, err)}
	var args []any
	if peer != "" {
		r.Err = fmt.Errorf("%s: peer %s: %w", listener, peer, err)
		args = append(args, "peer", peer)
	}
	l.recent.note(&r, "", time.Now())
	l.metrics.Refuse(reason)
	l.log.Warn(what, append(args, "listener", listener, "reason", string(reason), "error", strings.Clone(Short(err.Error(), maxText)))...)
}

// Recent returns what was refused or ended in the last minute, by reason, the most frequent
// first.
func (l *Log) Recent() []Recent { return l.recent.list(time.Now()) }
