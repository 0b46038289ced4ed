package fanout

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"

	"xdsrelay/internal/telemetry/redact"
	"xdsrelay/internal/xds"
)

// A bad resource that a whole fleet refuses is one line at once, and another one that
// counts; each NACK is counted and kept nevertheless.
func TestNacksOfAFleetAreFewLines(t *testing.T) {
	const fleet = 3 * sparingBurst
	var log logged
	r := newRig(t, func(o *Options) { o.Log = slog.New(redact.Handler(slog.NewTextHandler(&log, nil))) })
	r.house.group("edge").publish(update(t, xds.ClusterType, "a"))
	cc := r.dial()
	said := strings.Repeat("no, ", 500) + `inline_string: "hunter2"`
	for range fleet {
		c := r.delta(cc)
		c.ask(xds.ClusterType)
		m, err := c.Recv()
		if err != nil {
			t.Fatal(err)
		}
		c.must(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.TypeUrl, ResponseNonce: m.Nonce, ErrorDetail: &rpcstatus.Status{Code: 3, Message: said}})
		if err := c.CloseSend(); err != nil {
			t.Fatal(err)
		}
		for err == nil {
			_, err = c.Recv()
		}
	}
	r.house.mu.Lock()
	defer r.house.mu.Unlock()
	if len(r.house.nacks) != fleet {
		t.Errorf("%d NACKs are known, of %d", len(r.house.nacks), fleet)
	}
	if n := log.count("client refused a response"); n != 1 {
		t.Errorf("%d lines of %d NACKs", n, fleet)
	}
	for _, t := range r.srv.nackLog.due() {
		r.srv.nackLog.tell(t)
	}
	if n := log.count("clients refused a response again"); n != 1 || log.count("more=1499 count=1500 clients=1 ") != 1 {
		t.Errorf("they were counted in %d lines: %s", n, &log.text)
	}
	if log.count("hunter2") > 0 {
		t.Error("a secret is in a line")
	}
}

// tales is a log with a clock of its own.
func tales(t *testing.T) (*nackLog, *logged) {
	t.Helper()
	log := new(logged)
	return newNackLog(slog.New(slog.NewTextHandler(log, nil)), newSparing()), log
}

var refusedCluster = nackOf{xds.NewKey("edge"), xds.ClusterType, "v1"}

// The first refusal of a version is told at once, with all that it is about; then one
// line each nackEvery as long as there are more, and none after.
func TestRefusalsOfAVersionAreOneLineAndThenCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, log := tales(t)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); l.run(ctx) }()
		refuse := func(node string) {
			l.note(refusedCluster, &Nack{Version: "v1", Code: 3, Message: "no such thing", Node: node}, "n7", time.Now())
		}
		lines := func(want ...string) {
			t.Helper()
			synctest.Wait()
			log.mu.Lock()
			defer log.mu.Unlock()
			got := strings.Split(strings.TrimSpace(log.text.String()), "\n")
			log.text.Reset()
			if len(got) == 1 && got[0] == "" {
				got = nil
			}
			if len(got) != len(want) {
				t.Fatalf("lines are %q, not %q", got, want)
			}
			for i, w := range want {
				if !strings.Contains(got[i], w) {
					t.Errorf("%q is not in %q", w, got[i])
				}
			}
		}
		typ := string(xds.ClusterType)
		refuse("envoy-0")
		lines("level=WARN msg=\"client refused a response\" node=envoy-0 key=edge type=" + typ + " version=v1 nonce=n7 code=InvalidArgument reason=\"no such thing\"")
		last := time.Now().Format("2006-01-02T15:04:05.000Z07:00")
		for i := range 20_000 {
			refuse(fmt.Sprint("envoy-", i%5000))
		}
		lines()
		time.Sleep(nackEvery)
		lines("level=WARN msg=\"clients refused a response again\" key=edge type=" + typ + " version=v1 more=20000 count=20001 clients=5000 for=0s node=envoy-4999 code=InvalidArgument reason=\"no such thing\" last=" + last)
		refuse("envoy-1")
		time.Sleep(nackEvery)
		lines("more=1 count=20002 clients=5000 for=30s node=envoy-1")
		time.Sleep(10 * nackEvery)
		lines()
		l.mu.Lock()
		if len(l.tales) != 0 || l.refusers != 0 {
			t.Errorf("%d versions and %d clients are still known", len(l.tales), l.refusers)
		}
		l.mu.Unlock()
		refuse("envoy-2") // after it was over
		lines("client refused a response")
		refuse("envoy-2")
		cancel()
		<-done
		lines("more=1 count=2 clients=1")
	})
}

// What is known of refusals has a bound, whatever clients refuse; what goes for
// another one is told.
func TestRefusalsThatAreKnownAreBounded(t *testing.T) {
	l, log := tales(t)
	now := time.Now()
	say := func(version, node string) {
		now = now.Add(time.Millisecond)
		of := refusedCluster
		of.version = version
		l.note(of, &Nack{Version: version, Node: node}, "n", now)
	}
	for i := range maxTales {
		say(fmt.Sprint("v", i), "a")
		say(fmt.Sprint("v", i), "b")
	}
	if n := log.count("again"); n != 0 || len(l.tales) != maxTales || l.refusers != 2*maxTales {
		t.Fatalf("%d lines, %d versions, %d clients", n, len(l.tales), l.refusers)
	}
	say("v0", "c") // and so it is not the oldest any more
	say("another", "a")
	if log.count("version=v1 more=1 count=2 clients=2") != 1 || log.count("again") != 1 {
		t.Errorf("told was %s", &log.text)
	}
	if len(l.tales) != maxTales || l.refusers != 2*maxTales {
		t.Errorf("%d versions and %d clients are known", len(l.tales), l.refusers)
	}
	for i := range 2 * maxRefusers {
		say("another", fmt.Sprint("node-", i))
	}
	if l.refusers != maxRefusers {
		t.Errorf("%d clients are told apart, not %d", l.refusers, maxRefusers)
	}
	for _, t := range l.due() {
		l.tell(t)
	}
	if log.count("clients_at_least=") != 1 || log.count(fmt.Sprint("version=another more=", 2*maxRefusers)) != 1 {
		t.Error("it is not said that there are more")
	}
}
