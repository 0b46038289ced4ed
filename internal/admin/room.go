package admin

import (
	lists "container/list"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
)

// room is a listener that has so many connections open at a time. One more takes the
// place of that which has had nothing to say for longest: who keeps connections open
// keeps nobody out, least of all those who ask whether the relay lives. Where all are
// being answered, it waits.
type room struct {
	net.Listener
	most int

	mu    sync.Mutex
	open  map[*guest]struct{}
	idle  lists.List    // of *guest, of which nothing is being answered, the longest first
	left  chan struct{} // one slot: one has left, or is idle
	ended chan struct{}
	end   sync.Once
}

// guest is a connection of a room.
type guest struct {
	net.Conn
	in *room
	at *lists.Element // in idle; nil: it is being answered
}

func newRoom(l net.Listener, most int) *room {
	return &room{Listener: l, most: most, open: make(map[*guest]struct{}), left: make(chan struct{}, 1), ended: make(chan struct{})}
}

// Accept implements net.Listener.
func (r *room) Accept() (net.Conn, error) {
	c, err := r.Listener.Accept()
	if err != nil {
		return nil, err
	}
	for {
		g, gives := r.enter(c)
		if gives != nil {
			_ = gives.Close() // its reader sees it
		}
		if g != nil {
			return g, nil
		}
		if gives != nil {
			continue
		}
		select {
		case <-r.left:
		case <-r.ended:
			_ = c.Close() // nobody has heard of it
			return nil, net.ErrClosed
		}
	}
}

// enter takes a connection in; if there is no room, it returns who gives way, if
// anybody does.
func (r *room) enter(c net.Conn) (g, gives *guest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.open) >= r.most {
		if longest := r.idle.Front(); longest != nil {
			gives = longest.Value.(*guest)
		}
		return nil, gives
	}
	g = &guest{Conn: c, in: r}
	g.at = r.idle.PushBack(g)
	r.open[g] = struct{}{}
	return g, nil
}

// state is told what becomes of a connection, as http.Server has it.
func (r *room) state(c net.Conn, is http.ConnState) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	g, ok := c.(*guest)
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, open := r.open[g]; !open {
		return
	}
	switch {
	case is == http.StateActive && g.at != nil:
		r.idle.Remove(g.at)
		g.at = nil
	case is == http.StateIdle && g.at == nil:
		g.at = r.idle.PushBack(g)
		r.tell()
	}
}

// tell wakes who waits for room.
func (r *room) tell() {
	select {
	case r.left <- struct{}{}:
	default:
	}
}

// Close implements net.Conn. Whoever closes a connection comes by here.
func (g *guest) Close() error {
	r := g.in
	r.mu.Lock()
	if _, open := r.open[g]; open {
		delete(r.open, g)
		if g.at != nil {
			r.idle.Remove(g.at)
		}
		r.tell()
	}
	r.mu.Unlock()
	return g.Conn.Close()
}

// Close implements net.Listener.
func (r *room) Close() error {
	r.end.Do(func() { close(r.ended) })
	return r.Listener.Close()
}
