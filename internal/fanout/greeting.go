package fanout

import "sync"

// greetings are the connections that have not said anything in HTTP/2 yet: in their
// handshake, or before the preface. grpc waits for them when it stops, by whatever
// way, for as long as a connection may take to be made; nobody is to keep a relay
// from ending by saying nothing.
type greetings struct {
	mu    sync.Mutex
	conns map[*conn]struct{}
	over  bool
}

func (g *greetings) add(c *conn) {
	g.mu.Lock()
	over := g.over
	if !over {
		if g.conns == nil {
			g.conns = make(map[*conn]struct{})
		}
		g.conns[c] = struct{}{}
	}
	g.mu.Unlock()
	if over {
		_ = c.Close() // nobody is there to tell
	}
}

func (g *greetings) remove(c *conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.conns, c)
}

// HangUp closes the connections that have said nothing yet, and all that come from
// now on. It is called when the grpc server is about to stop.
func (s *Server) HangUp() {
	g := &s.greetings
	g.mu.Lock()
	conns := g.conns
	g.conns, g.over = nil, true
	g.mu.Unlock()
	for c := range conns {
		_ = c.Close() // nobody is there to tell
	}
}
