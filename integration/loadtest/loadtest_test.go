//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.uber.org/goleak"
	"golang.org/x/net/http2"
	"google.golang.org/protobuf/proto"
)

// TestMain makes the test's binary the program that a run starts again for its parts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == roleArg {
		os.Exit(asChild(os.Args[2:]))
	}
	dir, err := os.MkdirTemp("", "loadtest")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binaries = dir
	restingTime, pingEvery = 200*time.Millisecond, 200*time.Millisecond
	changesPerTurn = 3
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// binaries is the directory of the relay's binary, built once for all tests.
var binaries string

var built = sync.OnceValues(func() (string, error) {
	o := &options{}
	err := o.build(context.Background(), binaries)
	return o.relay, err
})

func relay(t *testing.T) string {
	t.Helper()
	file, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func small(t *testing.T) *options {
	return &options{load: load{Clients: 200, Bytes: 100_000}, rounds: 2, busy: 1, dir: t.TempDir(), log: t.Logf}
}

// All contenders serve all clients, and every value of a table is measured. The test does not check
// speed.
func TestShortRun(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	o := small(t)
	o.relay = relay(t)
	o.against = o.relay
	samples, err := run(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	r := newReport(o, samples, []string{"test"})
	if len(r.Contenders) != len(entries)+1 {
		t.Fatalf("%d contenders, want %d", len(r.Contenders), len(entries)+1)
	}
	for _, c := range r.Contenders {
		if len(c.Samples) != o.rounds || c.ElapsedToRaw == nil || c.LessCPUThanSnapshot == nil || c.LessCPUThanLinear == nil || c.CPUToOther == nil {
			t.Errorf("%s: %d samples, ratios %v, %v, %v and %v", c.Name, len(c.Samples), c.ElapsedToRaw, c.LessCPUThanSnapshot, c.LessCPUThanLinear, c.CPUToOther)
		}
		for _, s := range c.Samples {
			if s.Elapsed <= 0 || s.Latency < s.Elapsed || s.CPU <= 0 || s.Resident <= 0 {
				t.Errorf("%s: a sample %+v", c.Name, s)
			}
		}
	}
	var table bytes.Buffer
	if err := r.table(&table); err != nil {
		t.Fatal(err)
	}
	t.Log(table.String())
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
}

// The profiles of each server are readable.
func TestProfiles(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	o := small(t)
	o.load, o.rounds, o.profile, o.only = load{Clients: 10, Bytes: 2000}, 1, t.TempDir(), []string{nameBare, nameRelay}
	o.relay = relay(t)
	if _, err := run(ctx, o); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"bare-gRPC.pprof", "relay.pprof", "bare-gRPC.heap.pprof", "relay.heap.pprof"} {
		text, err := os.ReadFile(filepath.Join(o.profile, name))
		if err != nil || !bytes.HasPrefix(text, []byte("\x1f\x8b")) {
			t.Errorf("%s: %d bytes, %v", name, len(text), err)
		}
	}
	for _, name := range []string{"bare-gRPC.txt", "relay.txt"} {
		text, err := os.ReadFile(filepath.Join(o.profile, name))
		for _, want := range []string{"CPU while busy", "heap in use", "ever allocated", "flat%"} {
			if err != nil || !strings.Contains(string(text), want) {
				t.Errorf("%s: %v, has no %q: %s", name, err, want, text)
			}
		}
	}
}

// If a part fails, the error has its name and its standard error.
func TestFailureShowsStderr(t *testing.T) {
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken")
	if err := os.WriteFile(broken, []byte("#!/bin/sh\necho cannot open the frobnicator >&2\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	o := small(t)
	o.only, o.relay = []string{nameRelay}, broken
	_, err := run(t.Context(), o)
	if err == nil || !strings.HasPrefix(err.Error(), "relay: ended: exit status 3") || !strings.Contains(err.Error(), "frobnicator") {
		t.Fatalf("got %v", err)
	}

	c, _, err := startRole(t.Context(), "clients of no server", roleCrowd, crowdSettings{
		Load: load{Clients: 1}, Addr: "127.0.0.1:1", Readers: 1,
	})
	if err == nil {
		c.stop()
	}
	if err == nil || !strings.Contains(err.Error(), "clients of no server") || !strings.Contains(err.Error(), "connection refused") {
		t.Fatalf("got %v", err)
	}
}

// A run that takes too long ends by itself, and names the clients that were late.
func TestRunIsBounded(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	o := small(t)
	o.rounds, o.only = 1_000_000, []string{nameRaw}
	o.log = func(format string, args ...any) {
		if strings.HasPrefix(format, "round") {
			cancel(context.DeadlineExceeded)
		}
	}
	if _, err := run(ctx, o); err == nil || !strings.Contains(err.Error(), nameRaw) || !strings.Contains(err.Error(), "deadline") {
		t.Fatalf("got %v", err)
	}
}

func TestOptions(t *testing.T) {
	good := load{Clients: 1, Bytes: 1}
	for _, c := range []struct {
		o    options
		only string
		want string
	}{
		{options{load: good, rounds: 1}, "", ""},
		{options{load: good, rounds: 1}, "relay, raw TCP", ""},
		{options{load: good, rounds: 1}, "TCP", `no "TCP"`},
		{options{load: good}, "", "at least 1"},
		{options{load: load{Clients: 1 << 40, Bytes: 1}, rounds: 1}, "", "at most"},
	} {
		err := c.o.check(c.only)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v, only %q: %v, want %q", c.o, c.only, err, c.want)
		}
	}
}

// Invalid arguments are rejected before anything is started.
func TestArguments(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kept.json")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"sotw-1k", "-rounds", "2"}, `"sotw-1k" "-rounds"`},
		{[]string{"-only", "relay,", "raw TCP"}, `left over: ["raw TCP"]`},
		{[]string{"-case", "sotw-1k", "-clients", "5"}, "-clients: not with -case"},
		{[]string{"-case", "sotw-1k", "-tls=false"}, "-tls: not with -case"},
		{[]string{"-json", filepath.Join(file, "none")}, "-json: "},
		{[]string{"-case", "eds-unwanted", "-only", "raw TCP"}, "none of raw TCP takes part in eds-unwanted, only bare gRPC, relay"},
		{[]string{"-json", file, "-only", "relay,"}, `no ""`},
	} {
		if err := parent(t.Context(), c.args); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.args, err, c.want)
		}
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("left behind: %v", err)
	}
	if err := byGHZ(t.Context(), []string{"-ghz", file}); err == nil || !strings.Contains(err.Error(), "make load") {
		t.Error(err)
	}
	for _, c := range loadCases {
		if (c.study != nil) != (len(c.by) > 0) {
			t.Errorf("%s: by %v", c.name, c.by)
		}
	}
}

func TestLoadHasItsSize(t *testing.T) {
	for _, size := range []int{1000, 10_000, 100_000, 1_000_000} {
		for _, n := range []int{0, 1, 123456} {
			b, err := load{Bytes: size}.body(n)
			if err != nil {
				t.Fatal(err)
			}
			if len(b) < size*97/100 || len(b) > size*103/100 {
				t.Errorf("%d bytes for %d", len(b), size)
			}
		}
	}
	for _, delta := range []bool{false, true} {
		for _, n := range []int{0, 1, 8000} {
			l := load{Bytes: 1000, Delta: delta, Clusters: 200, Names: 100}
			b, err := l.body(n)
			if err != nil {
				t.Fatal(err)
			}
			if want := l.size(n); len(b) < want*9/10 || len(b) > want*11/10 {
				t.Errorf("EDS, delta %v, generation %d: %d bytes, not %d", delta, n, len(b), want)
			}
		}
	}
}

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want spread
	}{
		{nil, spread{}},
		{[]float64{3}, spread{3, 3, 3}},
		{[]float64{5, 1, 3}, spread{3, 1, 5}},
		// Of ten values, the second and the ninth: 97.9 %; of six, the outermost: 96.9 %.
		{[]float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, spread{5.5, 2, 9}},
		{[]float64{1, 2, 3, 4, 5, 6}, spread{3.5, 1, 6}},
		{[]float64{4, 1, 2, 3}, spread{2.5, 1, 4}},
	} {
		if got := spreadOf(c.in); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.in, got, c.want)
		}
	}
	a, b := []sample{{CPU: 10}, {CPU: 30}}, []sample{{CPU: 5}, {CPU: 10}}
	if got := ratio(a, b, cpuTime); *got != (spread{2.5, 2, 3}) {
		t.Errorf("ratio %+v", *got)
	}
	if got := ratio(a, nil, cpuTime); got != nil {
		t.Errorf("ratio to nothing %+v", *got)
	}
}

// serverBytes is the output of a gRPC server: settings, a ping, and responses in frames of odd
// sizes.
func serverBytes(t *testing.T, responses ...*discoveryv3.DiscoveryResponse) []byte {
	t.Helper()
	var out bytes.Buffer
	fr := http2.NewFramer(&out, nil)
	var stream []byte
	for _, r := range responses {
		b, err := proto.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		stream = append(stream, dataFrame(nil, streamID, b)[frameHeader:]...)
	}
	err := fr.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 7})
	for size := 1; len(stream) > 0 && err == nil; size = size*3 + 1 {
		n := min(size, len(stream))
		err = fr.WriteData(streamID, false, stream[:n])
		stream = stream[n:]
		if err == nil {
			err = fr.WritePing(false, [8]byte{1, 2, 3})
		}
	}
	if err == nil {
		err = fr.WriteSettingsAck()
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// A client finds messages, and the versions and nonces to acknowledge, however the bytes are split.
func TestClientReads(t *testing.T) {
	l := load{Bytes: 5000}
	var responses []*discoveryv3.DiscoveryResponse
	for n, nonce := range []string{"", "a", "nonce-2"} {
		body, err := l.body(n)
		if err != nil {
			t.Fatal(err)
		}
		r := &discoveryv3.DiscoveryResponse{Nonce: nonce, ControlPlane: nil}
		if err := (proto.UnmarshalOptions{Merge: true}).Unmarshal(body, r); err != nil {
			t.Fatal(err)
		}
		responses = append(responses, r)
	}
	text := serverBytes(t, responses...)
	for _, piece := range []int{1, 2, 7, 100, 4096, len(text)} {
		var c h2
		var msg message
		var out []byte
		begun, got := 0, 0
		for b := text; len(b) > 0; {
			n := min(piece, len(b))
			err := c.feed(b[:n], &out, func(_ uint32, b []byte) error {
				return msg.feed(b, func() error { begun++; return nil }, func() error {
					want := responses[got]
					if string(msg.version) != want.VersionInfo || string(msg.nonce) != want.Nonce || msg.size != proto.Size(want) {
						t.Errorf("pieces of %d: message %d: version %q nonce %q size %d", piece, got, msg.version, msg.nonce, msg.size)
					}
					got++
					return nil
				})
			})
			if err != nil {
				t.Fatal(err)
			}
			b = b[n:]
		}
		if begun != len(responses) || got != len(responses) {
			t.Errorf("pieces of %d: %d messages begun, %d done", piece, begun, got)
		}
		pings, settings := answers(t, out)
		if pings == 0 || pings != bytes.Count(text, []byte{1, 2, 3, 0, 0, 0, 0, 0}) || settings != 1 {
			t.Errorf("pieces of %d: answered %d pings, %d settings", piece, pings, settings)
		}
	}
}

// answers counts the replies of a client.
func answers(t *testing.T, out []byte) (pings, settings int) {
	t.Helper()
	fr := http2.NewFramer(nil, bytes.NewReader(out))
	for {
		f, err := fr.ReadFrame()
		if err != nil {
			return pings, settings
		}
		switch f := f.(type) {
		case *http2.PingFrame:
			if f.IsAck() {
				pings++
			}
		case *http2.SettingsFrame:
			if f.IsAck() {
				settings++
			}
		}
	}
}

// Input that a client does not understand is an error, not a slow run.
func TestClientRefuses(t *testing.T) {
	var trailers bytes.Buffer
	fr := http2.NewFramer(&trailers, nil)
	var c h2
	hello := c.hello("a", load{}.path(), load{}.fields().first("n", nodeCluster, nil))
	// A server's trailers. The client's own headers serve as the block.
	in := http2.NewFramer(nil, bytes.NewReader(hello[len(http2.ClientPreface):]))
	for block := []byte(nil); block == nil; {
		f, err := in.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if h, ok := f.(*http2.HeadersFrame); ok {
			block = h.HeaderBlockFragment()
			if err := fr.WriteHeaders(http2.HeadersFrameParam{StreamID: streamID, BlockFragment: block, EndHeaders: true, EndStream: true}); err != nil {
				t.Fatal(err)
			}
		}
	}
	data := func(msg string) []byte { return appendFrame(nil, http2.FrameData, 0, streamID, len(msg)) }
	for name, b := range map[string][]byte{
		"ended the stream: :method: POST": trailers.Bytes(),
		"GOAWAY":                          append(appendFrame(nil, http2.FrameGoAway, 0, 0, 8), make([]byte, 8)...),
		"CONTINUATION":                    appendFrame(nil, http2.FrameContinuation, 0, 1, 0),
		"bytes":                           appendFrame(nil, http2.FrameHeaders, 0, 1, maxControl+1),
		"padded":                          append(appendFrame(nil, http2.FrameData, http2.FlagDataPadded, 1, 2), 1, 0),
		"compressed (1)":                  append(data("12345"), "\x01\x00\x00\x00\x05"...),
		"empty (0)":                       append(data("12345"), "\x00\x00\x00\x00\x00"...),
		"not of a DiscoveryResponse":      append(data("123456"), "\x00\x00\x00\x00\x05\x08"...),
		"too long":                        append(data("1234567"), "\x00\x00\x00\x00\x05\x0a\x70"...),
		"cut off":                         append(data("123456"), "\x00\x00\x00\x00\x01\x0a"...),
	} {
		var c h2
		var msg message
		var out []byte
		nop := func() error { return nil }
		err := c.feed(b, &out, func(_ uint32, b []byte) error { return msg.feed(b, nop, nop) })
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want one of %q", err, name)
		}
	}
}

// All contenders serve delta clients, which all receive only the change, and TLS. The plot shows
// all contenders.
func TestOtherLoads(t *testing.T) {
	for name, c := range map[string]loadCase{
		"delta": {name: "small-delta", load: load{Clients: 20, Bytes: 500, Delta: true, Clusters: 50}},
		"tls":   {name: "small-tls", load: load{Clients: 20, Bytes: 20_000}, tls: true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			defer cancel()
			o := small(t)
			o.relay = relay(t)
			r, err := o.measure(ctx, c, []string{"test"})
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Contenders) != len(entries) {
				t.Fatalf("%d contenders, want %d", len(r.Contenders), len(entries))
			}
			dir := t.TempDir()
			if err := r.plot(dir); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(filepath.Join(dir, c.name+".svg"))
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(text), "<rect"); n != 2*len(entries) {
				t.Errorf("%d bars", n)
			}
			if text, err := json.Marshal(r); err != nil || strings.Contains(string(text), o.dir) {
				t.Errorf("%v: %s", err, text)
			}
		})
	}
}

func TestCases(t *testing.T) {
	all, err := pickCases("all")
	if err != nil || len(all) != len(loadCases) {
		t.Errorf("%v %v", all, err)
	}
	if some, err := pickCases("tls-10k, sotw-1k"); err != nil || len(some) != 2 || some[0].name != "tls-10k" {
		t.Errorf("%v %v", some, err)
	}
	// Cases with goals are measured more often.
	o := small(t)
	o.rounds, o.only = 1, []string{nameRaw}
	r, err := o.measure(t.Context(), loadCase{load: load{Clients: 5, Bytes: 1000}, times: 3}, nil)
	if err != nil || r.Rounds != 3 || len(r.Contenders) != 1 || len(r.Contenders[0].Samples) != 3 || o.rounds != 1 {
		t.Errorf("%v, %+v", err, r)
	}
	if _, err := pickCases("sotw-1k,none"); err == nil || !strings.Contains(err.Error(), `"none"`) {
		t.Error(err)
	}
}
