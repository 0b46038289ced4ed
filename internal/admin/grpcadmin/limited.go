package grpcadmin

import (
	"net"
	"sync"
)

// limited accepts as many connections as there is room for. netutil's LimitListener
// hides what a connection is, and the socket's buffers are to be set.
type limited struct {
	net.Listener
	room chan struct{}
}

// Accept accepts first, and closes what there is no room for: who waits in the
// kernel would not learn of it, and neither would what looks for connections that
// say nothing.
func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.room <- struct{}{}:
		default:
			_ = c.Close() // nobody is there to tell
			continue
		}
		var once sync.Once
		leave := func() { once.Do(func() { <-l.room }) }
		if tcp, ok := c.(*net.TCPConn); ok {
			return &limitedTCP{tcp, leave}, nil
		}
		return &limitedConn{c, leave}, nil
	}
}

type limitedTCP struct {
	*net.TCPConn
	leave func()
}

func (c *limitedTCP) Close() error {
	defer c.leave()
	return c.TCPConn.Close()
}

type limitedConn struct {
	net.Conn
	leave func()
}

func (c *limitedConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
