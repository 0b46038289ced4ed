//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// studied measures a small case. It checks that its table, plot and JSON show every row, and that
// only optional values are missing.
func studied(t *testing.T, c loadCase) *study {
	t.Helper()
	o := small(t)
	o.relay = relay(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r, err := o.measure(ctx, c, []string{"test"})
	if err != nil {
		t.Fatal(err)
	}
	var table bytes.Buffer
	if err := r.table(&table); err != nil {
		t.Fatal(err)
	}
	t.Log(table.String())
	dir := t.TempDir()
	if err := r.plot(dir); err != nil {
		t.Fatal(err)
	}
	drawing, err := os.ReadFile(filepath.Join(dir, c.name+".svg"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(r)
	if err != nil || strings.Contains(string(text), o.dir) {
		t.Errorf("%v: %s", err, text)
	}
	for _, row := range r.Study.Rows {
		if len(row.Values) != len(r.Study.Columns) {
			t.Errorf("%s: %d values in %d columns", row.Name, len(row.Values), len(r.Study.Columns))
		}
		in := []string{table.String(), string(text)}
		if row.Values[r.Study.Drawn] != nil {
			in = append(in, string(drawing))
		}
		for _, in := range in {
			if !strings.Contains(in, row.Name) {
				t.Errorf("no %q in %s", row.Name, in)
			}
		}
	}
	return r.Study
}

// positive checks that these columns of a row have positive values.
func (s *study) positive(t *testing.T, row string, columns ...string) {
	t.Helper()
	for _, c := range columns {
		if v := s.value(row, c); v == nil || v.Median <= 0 {
			t.Errorf("%s: %q is %+v", row, c, v)
		}
	}
}

func TestIdle(t *testing.T) {
	for name, tls := range map[string]bool{"plaintext": false, "tls": true} {
		t.Run(name, func(t *testing.T) {
			l := idle(50)
			l.Clients = 100
			s := studied(t, loadCase{name: "small", load: l, tls: tls, study: studyIdle})
			for _, row := range []string{nameBare, nameRelay} {
				s.positive(t, row, "KB each", "stacks", "RSS MB without them", "with")
			}
		})
	}
}

func TestAllocs(t *testing.T) {
	s := studied(t, loadCase{name: "small", load: load{Clients: 100, Bytes: 1000}, study: studyAllocs})
	s.positive(t, nameBare, "both, B")
	// With so few clients, reading the relay's metrics allocates more than the clients do.
	for _, c := range s.Columns {
		if s.value(nameRelay, c) == nil {
			t.Errorf("relay: no %q", c)
		}
	}
}

func TestShort(t *testing.T) {
	for want, s := range map[string]*spread{
		"-": nil, "0": once(0), "0.0123": once(0.01234), "1.23": once(1.2345), "12.3": once(12.345), "123": once(123.45),
		"2.50 (1.00–3.00)": many([]float64{1, 2.5, 3}),
	} {
		if got := s.short(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := quotients([]float64{1, 4, 9}, []float64{1, 2, 3}); *got != (spread{2, 1, 3}) {
		t.Errorf("%+v", *got)
	}
}

// A difference that may be zero is printed with the digits of its interval.
func TestDifferences(t *testing.T) {
	d := differences([]float64{10, 21, 29.999}, []float64{12, 20, 30})
	if got := d.short(); got != "-0.00 (-2.00–1.00)" {
		t.Errorf("%q, of %+v", got, *d)
	}
	if d := differences([]float64{1}, nil); d != nil {
		t.Errorf("a difference to nothing: %+v", *d)
	}
}

// The measurement waits until memory is at rest, and reports memory that never is.
func TestUntilRest(t *testing.T) {
	for name, c := range map[string]struct {
		sizes []int64 // the last one stays, or continues to grow
		grows int64
		most  time.Duration
		moved int64
	}{
		"at rest":    {[]int64{50 << 20}, 0, restRelay, 0},
		"a burst":    {[]int64{50 << 20, 90 << 20, 40 << 20, 40<<20 + restBytes - 1}, 0, 3 * restRelay, 0},
		"it shrinks": {[]int64{500 << 20}, -restBytes, restMost + restRelay, -restBytes},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin, n := time.Now(), 0
				moved, err := untilRest(t.Context(), restRelay, func() (int64, error) {
					i := min(n, len(c.sizes)-1)
					v := c.sizes[i] + int64(n-i)*c.grows
					n++
					return v, nil
				})
				if took := time.Since(begin); err != nil || moved != c.moved || took > c.most {
					t.Errorf("moved by %d after %s, %v", moved, took, err)
				}
			})
		})
	}
}

// Clients that share a connection are told apart.
func TestStreamsOfOneConnection(t *testing.T) {
	o := small(t)
	o.relay, o.only = relay(t), []string{nameRelay, nameSnapshot}
	o.load = load{Clients: 25, Bytes: 3000, Streams: 10}
	if n := o.load.connections(); n != 3 {
		t.Errorf("%d connections", n)
	}
	if _, err := run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	c := client{streams: make([]stream, 2)}
	for _, id := range []uint32{0, 2, 5} {
		if st, err := c.stream(id); err == nil {
			t.Errorf("stream %d is %v", id, st)
		}
	}
}

// A change reaches all clients that subscribe to it, whatever else they subscribe to.
func TestLoadAssignments(t *testing.T) {
	small := eds(20)
	small.Clusters, small.Names = 60, 5
	for name, l := range map[string]load{"alike": small, "apart": small.apart(), "delta-apart": small.delta().apart()} {
		t.Run(name, func(t *testing.T) {
			o := options{load: l, rounds: 2, dir: t.TempDir(), log: t.Logf, relay: relay(t)}
			if _, err := run(t.Context(), &o); err != nil {
				t.Fatal(err)
			}
			seen := make(map[string]bool)
			for i := range l.Clients {
				seen[strings.Join(l.names(i), " ")] = true
			}
			if want := map[bool]int{false: 1, true: l.Clients}[l.Apart]; len(seen) != want {
				t.Errorf("clients have %d different subscriptions, want %d", len(seen), want)
			}
		})
	}
}

func TestUnwanted(t *testing.T) {
	l := eds(40).delta()
	l.Clusters, l.Names = 60, 5
	s := studied(t, loadCase{name: "small", load: l, study: studyUnwanted})
	if len(s.Rows) != 3 {
		t.Fatalf("rows %+v", s.Rows)
	}
	// Two rounds of three changes are too few for the net values: the memory for reading the
	// metrics is subtracted, and it varies by more than three changes allocate.
	for _, row := range s.Rows[:2] {
		s.positive(t, row.Name, "CPU at rest included", "× of that", "from trigger ms")
		if s.value(row.Name, "alloc B/change") == nil {
			t.Errorf("%s: no allocated bytes", row.Name)
		}
	}
	for _, row := range s.Rows { // may be zero in so short a time
		if s.value(row.Name, "at rest for a minute, % of a core") == nil {
			t.Errorf("%s: nothing at rest", row.Name)
		}
	}
	others := l
	others.Asks = &l.Names
	for i := range 30 {
		if names := others.names(i); strings.Contains(strings.Join(names, " "), clusterName(0)) {
			t.Errorf("client %d must not want the changed name, and subscribes to %v", i, names)
		}
	}
}

func TestArrive(t *testing.T) {
	s := studied(t, loadCase{name: "small", load: load{Clients: 30, Bytes: 5000}, study: studyArrive})
	for _, row := range []string{nameBare, nameRelay, nameSnapshot} {
		s.positive(t, row, s.Columns...)
	}
}

// Clients of many keys receive their key's resources from all servers.
func TestKeys(t *testing.T) {
	o := options{load: load{Clients: 20, Bytes: 3000, Keys: 7}, rounds: 1, dir: t.TempDir(), log: t.Logf, relay: relay(t)}
	if _, err := run(t.Context(), &o); err != nil {
		t.Fatal(err)
	}
}

func TestScale(t *testing.T) {
	for name, l := range map[string]load{"equal": scale(30), "own": ownScale(30)} {
		t.Run(name, func(t *testing.T) {
			l.Streams = 4
			s := studied(t, loadCase{name: "small", load: l, study: studyScale})
			s.positive(t, "keys with a client each", "stacks", "all served s", "update: from trigger ms", "elapsed ms", "CPU µs/key")
			s.positive(t, "keys without clients", "KB each")
		})
	}
}

// After an outage of the origin, all clients get what changed meanwhile. While it is away, there is at
// most one attempt a second, and at most 200 streams are opened in a second (P54).
func TestP54_Return(t *testing.T) {
	before := outageTime
	outageTime = 8 * time.Second
	t.Cleanup(func() { outageTime = before })
	l := scale(600)
	l.Streams = 50
	s := studied(t, loadCase{name: "small", load: l, study: studyReturn})
	for _, row := range s.Rows {
		s.positive(t, row.Name, "all up to date after s", "most streams opened in a second")
		if v := s.value(row.Name, "most streams opened in a second"); v.Median > 220 { // and late readings
			t.Errorf("%s: %.0f streams were opened in a second", row.Name, v.Median)
		}
		if v := s.value(row.Name, "attempts/s while away"); v != nil && v.Median > 1.5 {
			t.Errorf("%s: %.1f attempts a second", row.Name, v.Median)
		}
		if v := s.value(row.Name, "all up to date after s"); v.Median > 30 {
			t.Errorf("%s: all are up to date after %.0f s", row.Name, v.Median)
		}
	}
}

// Clients that stop reading lag behind, and have the newest when they read again. They are
// disconnected for both reasons. Other clients are served.
func TestSlow(t *testing.T) {
	s := studied(t, loadCase{name: "small", load: load{Clients: 20, Slow: 4, Bytes: 1_000_000, EveryMS: 250, Seconds: 3}, study: studySlow})
	s.positive(t, "without slow readers", "p99 ms", "changes/s")
	s.positive(t, "with 4 slow readers", "p99 ms", "× without", "kernel", "newest to all after s", "in responses",
		"cut by send_timeout s", "first cut by pinned_bytes s")
	if n := s.value("with 4 slow readers", "in responses"); n == nil || n.Median > 8 {
		t.Errorf("twelve changes went to a slow reader in %+v responses", n)
	}
}

// Data that waits in a socket is counted. A server that limits unsent data has little of it.
func TestKernelBytes(t *testing.T) {
	t.Run("unlimited", func(t *testing.T) {
		unread(t, func(l net.Listener) net.Listener { return l }, 64<<20)
	})
	t.Run("limited", func(t *testing.T) {
		unread(t, func(l net.Listener) net.Listener { return unsentLimiter{l} }, 256<<10)
	})
}

// unread makes a server write to a client that does not read.
func unread(t *testing.T, as func(net.Listener) net.Listener, most int64) {
	t.Helper()
	l, err := listen()
	if err != nil {
		t.Fatal(err)
	}
	l = as(l)
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	// Nothing is read: the data fills the client's buffer first, then the server's.
	_ = server.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
	if n, err := server.Write(make([]byte, 64<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%d written, %v", n, err)
	}
	for addr, most := range map[string]int64{l.Addr().String(): most, client.LocalAddr().String(): 64 << 20} {
		if n, err := kernelBytes(addr); err != nil || n < 32<<10 || n > most {
			t.Errorf("%s of %s (server) and %s: %d, %v", addr, l.Addr(), client.LocalAddr(), n, err)
		}
	}
}
