package cluster

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"xdsrelay/internal/xdstest"
)

// Another label or gossip key, or none, keeps relays apart. Both say why, once for each peer.
func TestStrangers(t *testing.T) {
	const line = `msg="cannot gossip with a peer"`
	for name, test := range map[string]struct {
		change  func(*Options)
		reasons string
	}{
		"another label":       {func(o *Options) { o.Label = "other" }, "another cluster.name"},
		"another key":         {func(o *Options) { o.KeyFile = writeKeys(t, 2) }, "another gossip key"},
		"no key":              {func(o *Options) { o.KeyFile = "" }, "another gossip key or none"},
		"another key's label": {func(o *Options) { o.KeyFile, o.Label = writeKeys(t, 2), "other" }, "another cluster.name"},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, n *network) {
				noWatch := func(o *Options) { o.KeyFile = writeKeys(t, 1) }
				a, b := n.new("a", noWatch), n.new("b", noWatch)
				c := n.new("c", noWatch, test.change)
				for _, r := range []*relay{a, b, c} {
					r.watch = func(ctx context.Context, _ *slog.Logger, _ func() []string, _ func() bool) error {
						<-ctx.Done()
						return nil
					}
					xdstest.Run(t, r.Run)
				}
				sleep(10 * time.Minute)
				expect(t, "a alive, b alive", a, b)
				expect(t, "c alive", c)
				if !closed(c.Joined()) {
					t.Error("waits for ever")
				}
				for _, r := range []*relay{a, b} {
					if r.log.Count(line) != 1 || r.log.Count("cannot join a member") != 1 || r.log.Count(test.reasons) != 2 {
						t.Errorf("log of %s:\n%s", r.options.Name, r.log)
					}
				}
				if c.log.Count(line) != 2 || c.log.Count("cannot join a member") != 2 {
					t.Errorf("log of c:\n%s", c.log)
				}
			})
		})
	}
}

// Something else that sends to the gossip port does no harm, and is logged once.
func TestAnotherProtocol(t *testing.T) {
	run(t, func(t *testing.T, n *network) {
		a, b := n.start("a"), n.start("b")
		x := n.Transport("10.0.1.1:80")
		sleep(5 * time.Second)
		for range 100 {
			_, _ = x.WriteTo([]byte("GET / HTTP/1.1\r\n\r\n"), a.address) // it returns nil
			c, err := x.DialTimeout(a.address, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = c.Write([]byte("GET / HTTP/1.1\r\n\r\n")) // a may close it before
			_ = c.Close()
			sleep(time.Second)
		}
		expect(t, "a alive, b alive", a, b)
		if a.log.Count(`msg="cannot gossip with a peer" peer=10.0.1.1 reason="it speaks another protocol"`) != 1 || a.log.Count("10.0.1.1") != 1+1 {
			t.Errorf("log:\n%s", a.log)
		}
	})
}

// A member of a later protocol is listed, and owns nothing.
func TestAnotherProtocolVersion(t *testing.T) {
	run(t, func(t *testing.T, n *network) {
		a, b := n.start("a"), n.new("b")
		b.self.Compat = "rules\nappended by a later version"
		b.stop = xdstest.Run(t, b.Run)
		sleep(5 * time.Second)
		expect(t, "a alive, b alive", a)
		a.mu.Lock()
		for id, p := range a.peers {
			if id == b.self.id {
				p.read("2\nrd\n1\nx\nv\nc")
			}
		}
		a.update()
		a.mu.Unlock()
		expect(t, "a alive, b unusable (another protocol version)", a)
		if got := a.candidates("key"); got != "a" {
			t.Errorf("candidates: %q", got)
		}
	})
}
