package fanout

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// silent is a client that never reacts.
type silent struct{}

func (silent) WriteStatus(*status.Status) error { return nil }

// addSilent adds streams of such clients, which do not end when they are told to.
func (s *Server) addSilent(n int) {
	for range n {
		s.add(&stream{srv: s, fin: silent{}})
	}
}

// Draining ends clients evenly over its time, whether they are few or many. It waits for nothing
// once the last one is told.
func TestDrainIsEven(t *testing.T) {
	const over = 6 * time.Second
	for _, n := range []int{0, 1, 2, 60, 1000} {
		synctest.Test(t, func(t *testing.T) {
			s := NewServer(Options{Metrics: newMetrics(t)})
			s.addSilent(n)
			began := time.Now()
			done := make(chan int)
			go func() { told, _ := s.Drain(t.Context(), over); done <- told }()
			told := func() (told int) {
				for _, st := range s.all() {
					if st.refusal.Load() != nil {
						told++
					}
				}
				return told
			}
			time.Sleep(drainTick / 2)
			if got := told(); got != 0 {
				t.Errorf("%d: %d are told before GOAWAY has reached them", n, got)
			}
			for at := time.Second; at < over; at += time.Second {
				time.Sleep(time.Until(began.Add(at + drainTick/2)))
				// One is told as its share begins.
				share := float64(n) * (at + drainTick/2).Seconds() / over.Seconds()
				if got := told(); float64(got) < share-float64(n)/100 || float64(got) > share+1 {
					t.Errorf("%d: after %v %d are told, want about %.1f", n, at, got, share)
				}
			}
			if got := <-done; got != n || told() != n {
				t.Errorf("%d: told %d, says %d", n, told(), got)
			}
		})
	}
}

// A drain that is cut short says how many clients were not told.
func TestDrainInAHurry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(Options{Metrics: newMetrics(t)})
		s.addSilent(10)
		ctx, hurry := context.WithTimeout(t.Context(), 2*time.Second+drainTick/2)
		defer hurry()
		if told, left := s.Drain(ctx, 10*time.Second); told != 3 || left != 7 {
			t.Errorf("told %d, %d are left", told, left)
		}
	})
}

// The log line of a refused poll is like that of a refused stream: client, peer and reason.
func TestRefusedPollsAreLogged(t *testing.T) {
	r := newREST(t, nil)
	r.groups.Refuse = refuse(codes.PermissionDenied, telemetry.Unmapped)
	c := r.HTTP("http1")
	r.Refused(r.Ask(c, xds.ClusterType, ""), 403)
	if n := r.log.Count(`level=INFO msg="client poll refused" node=n peer=127.0.0.1:`); n != 1 ||
		r.log.Count(" reason=unmapped code=PermissionDenied error=") != 1 || r.log.Count("identity=") != 0 {
		t.Error(r.log.String())
	}
	for body, reason := range map[string]string{"": "the body is empty", " \n": "the body is empty", "{": "not a DiscoveryRequest in canonical JSON"} {
		got := xdstest.Must(r.Post(xdstest.Context(t), c, "/v3/discovery:clusters", []byte(body)))(t)
		if f := r.Refused(got, 400); !strings.Contains(f.Error, reason) {
			t.Errorf("%q: %+v", body, f)
		}
	}
	if r.log.Count("node=\"\"") != 0 || r.log.Count("reason=request_invalid") != 3 {
		t.Error("a node that nobody knows is in the log, or what was refused is not")
	}
}

// A line has the identity that the client's certificate proves. It has the key instead of the error
// if the whole key is refused. Endings that are planned have no line.
func TestRefusalsAreLogged(t *testing.T) {
	var log xdstest.Log
	s := NewServer(Options{Metrics: newMetrics(t), Log: log.Logger()})
	away := refusal.New(codes.Unavailable, telemetry.OriginUnreachable, "a long story")
	away.Key = "web"
	for _, c := range []struct {
		*refusal.Refusal
		refusal.Client
		line string
	}{
		{refusal.New(codes.Unavailable, telemetry.KeyChanged, "why"), refusal.Client{Node: "n", Peer: "10.0.0.1:5"}, ""},
		{refusal.New(codes.Unavailable, telemetry.Draining, "why"), refusal.Client{Node: "n", Peer: "10.0.0.1:5"}, ""},
		{away, refusal.Client{Node: "n", Peer: "[::1]:5"}, "node=n peer=[::1]:5 reason=origin_unreachable code=Unavailable key=web\n"},
		{refusal.New(codes.Unavailable, telemetry.Identity, "why"), refusal.Client{Node: "n", Peer: "10.0.0.1:5", Identity: "uri:spiffe://n"},
			"identity=uri:spiffe://n reason=identity code=Unavailable error=why\n"},
	} {
		s.refusals.Note("client stream ended", c.Refusal, c.Client)
		if text := strings.Join(log.Take(), ""); !strings.HasSuffix(text+"\n", c.line) || (text == "") != (c.line == "") {
			t.Errorf("%s: logged %q", c.Reason, text)
		}
	}
}
