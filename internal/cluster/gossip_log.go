package cluster

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"
)

const (
	// faultEvery is how often the same fault of the same peer is logged.
	faultEvery = time.Hour
	// maxFaults is how many faults are logged in this time.
	maxFaults = 100
)

// gossipLog is where memberlist writes its log. A peer may cause a fault with each packet.
type gossipLog struct {
	log *slog.Logger

	mu     sync.Mutex
	logged map[string]bool // by peer and fault
	since  time.Time
}

// Write logs a line of memberlist, such as "[ERR] memberlist: text from=10.0.0.1:7946".
func (g *gossipLog) Write(line []byte) (int, error) {
	prefix, text, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
	text = strings.TrimPrefix(text, "memberlist: ")
	level := slog.LevelWarn // also for errors: they are about one packet or stream
	switch prefix {
	case "[DEBUG]":
		level = slog.LevelDebug
	case "[INFO]":
		level = slog.LevelInfo
	}
	_, from, incoming := strings.Cut(text, "from=")
	fault := faultOf(text)
	if level < slog.LevelWarn || !incoming || fault == "" {
		g.log.Log(context.Background(), level, "gossip", "text", text)
		return len(line), nil
	}
	peer := from
	if host, _, err := net.SplitHostPort(from); err == nil {
		peer = host
	}
	if g.first(peer + " " + fault) {
		g.log.Warn("cannot gossip with a peer", "peer", peer, "reason", fault, "error", text)
	}
	return len(line), nil
}

// first reports whether a fault is to be logged.
func (g *gossipLog) first(fault string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.since) >= faultEvery {
		g.logged, g.since = make(map[string]bool), time.Now()
	}
	if g.logged[fault] || len(g.logged) >= maxFaults {
		return false
	}
	g.logged[fault] = true
	return true
}

// faultOf says in the relay's words which fault of a peer a text of memberlist is about; "" if none.
func faultOf(text string) string {
	const stranger = "it speaks another protocol"
	for _, f := range [][2]string{
		{`label ""`, stranger},
		{"label", "it has another cluster.name"},
		{"crypt", "it has another gossip key or none, or speaks another protocol"},
		{"msgType", stranger}, {"msg type", stranger}, {"decode", stranger}, {"receive", stranger},
		{"decompress", stranger}, {"read remote state", stranger}, {"checksum", stranger},
	} {
		if strings.Contains(text, f[0]) {
			return f[1]
		}
	}
	return ""
}
