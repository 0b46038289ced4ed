package xdstest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
)

// given holds the ports that Listen gave out. It gives none twice: one that is
// closed may belong to a server that will have it again.
var given sync.Map

// Listen listens on a loopback port outside the range that the kernel gives to
// outgoing connections, so that a restarted server can have the port again. Test
// processes that run at the same time usually have ranges of their own.
func Listen(t testing.TB) net.Listener {
	t.Helper()
	var err error
	for range 200 {
		var l net.Listener
		port := 20000 + os.Getpid()%4*3000 + rand.N(3000)
		if _, was := given.LoadOrStore(port, true); was {
			continue
		}
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			return l
		}
	}
	t.Fatalf("no port to listen on: %v", err)
	return nil
}

// FreeAddress returns a loopback address without a listener.
func FreeAddress(t testing.TB) string {
	t.Helper()
	l := Listen(t)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}
