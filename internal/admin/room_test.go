package admin

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// Connections that are kept open, with and without a request, keep nobody out: those
// that have been idle for longest give way, and no answer is cut off.
func TestIdleConnectionsGiveWay(t *testing.T) {
	r := serve(t, nil)
	dial := func(say string) net.Conn {
		c, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if _, err := io.WriteString(c, say); err != nil {
			t.Fatal(err)
		}
		return c
	}
	ask := func(c net.Conn) error {
		if _, err := io.WriteString(c, "GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			return err
		}
		if err := c.SetReadDeadline(time.Now().Add(idleTimeout / 4)); err != nil {
			return err
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
	events := dial("GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
	page := bufio.NewReader(events)
	if _, err := page.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	oldest := dial("")
	var kept []net.Conn
	for range maxConnections {
		c := dial("")
		if err := ask(c); err != nil {
			t.Fatalf("%d are open: %v", len(kept)+2, err)
		}
		kept = append(kept, c)
	}
	if err := oldest.SetReadDeadline(time.Now().Add(headerTimeout / 2)); err != nil {
		t.Fatal(err)
	}
	if _, err := oldest.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the one that has been idle for longest: %v", err)
	}
	if err := ask(kept[len(kept)-1]); err != nil {
		t.Errorf("the one that was asked last: %v", err)
	}
	if _, err := page.ReadString('\n'); err != nil {
		t.Errorf("the one that is being answered: %v", err)
	}
}

// Where all are being answered the next one waits until one has been.
func TestRoomWaits(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	in := newRoom(l, 1)
	var there []net.Conn
	for range 2 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		there = append(there, c)
	}
	first, err := in.Accept()
	if err != nil {
		t.Fatal(err)
	}
	in.state(first, http.StateActive)
	second := make(chan net.Conn)
	go func() {
		c, err := in.Accept()
		if err != nil {
			t.Error(err)
		}
		second <- c
		_, err = in.Accept() // of a third there is none
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("at the end: %v", err)
		}
		close(second)
	}()
	select {
	case <-second:
		t.Error("it did not wait")
	case <-time.After(50 * time.Millisecond):
	}
	_ = first.Close()
	c := <-second
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	<-second
	for _, c := range append(there, c) {
		_ = c.Close()
	}
}
