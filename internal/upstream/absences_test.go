package upstream

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"xdsrelay/internal/xds"
)

// Names that are taken for absent are a line for their key and type, and then one each
// while that counts: who was told that they do not exist finds out why.
func TestP57_WhatIsTakenForAbsentIsTold(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		log := new(logged)
		f := n.origin("one")
		r := startRelay(t, Options{Variant: v, Dialer: n.dial, Keepalive: Keepalive{Time: 1000 * time.Hour}, Log: slog.New(slog.NewTextHandler(log, nil))}, addressOf("one"))
		stream, sink := r.stream(named(rds, "a", "b", "c"))
		s := f.next()
		s.request()
		s.send(resp{typ: rds, version: "1", res: clusters("a")})
		time.Sleep(16 * time.Second)
		synctest.Wait()
		line := fmt.Sprintf(`level=INFO msg="names are taken for absent: the origin says nothing of them" key=key origin=%s type=%s names=2 one=b after=15s`, addressOf("one"), rds)
		if log.count(line+"\n") != 1 {
			t.Fatalf("no %s in\n%s", line, log)
		}
		stream.SetInterest(sink.want(named(rds, "a", "b", "c", "d")))
		s.request()
		s.send(resp{typ: rds, version: "2", res: clusters("a")}) // so that it lives
		time.Sleep(45 * time.Second)
		synctest.Wait()
		if log.count("for absent") != 2 || log.count(`msg="names are taken for absent again" key=key`) != 1 || log.count(" more=1 count=3 one=d for=1") != 1 || log.count(" last=") != 1 {
			t.Error(log)
		}
		time.Sleep(10 * absencesEvery)
		synctest.Wait()
		if log.count("for absent") != 2 || len(r.client.absences.known) != 0 {
			t.Errorf("it is told again, or known still, and nothing was added:\n%s", log)
		}
	})
}

// Many keys have a line each within what is bounded, and no more memory.
func TestP57_ManyThatAreTakenForAbsent(t *testing.T) {
	log := new(logged)
	a := newAbsences(time.Second)
	for i := range 3 * maxAbsences {
		s := &Stream{id: fmt.Sprint(i), log: slog.New(slog.NewTextHandler(log, nil))}
		a.note(s, &xds.Update{Type: rds, Origin: "one", Guess: true, Removed: []string{strings.Repeat("n", 2000)}}, time.Now())
	}
	if len(a.known) != maxAbsences {
		t.Errorf("%d are known", len(a.known))
	}
	if n := log.count("\n"); n < versionsBurst || n > versionsBurst+20 {
		t.Errorf("%d lines", n)
	}
	if n := len(log.String()); n > log.count("\n")*(maxNameText+300) {
		t.Errorf("%d bytes of log", n)
	}
}

// That the relay did not run is told, with for how long.
func TestP57_ThatTheRelayDidNotRunIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(logged)
		p := pulse{most: 15 * time.Second, log: slog.New(slog.NewTextHandler(log, nil))}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { p.run(ctx); close(done) }()
		stopped := func(d time.Duration) {
			synctest.Wait()
			p.mu.Lock()
			p.last = p.last.Add(-d)
			p.mu.Unlock()
			time.Sleep(beatEvery)
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		stopped(500 * time.Millisecond) // a matter of load
		if log.count("\n") != 0 {
			t.Errorf("it ran, and the log says\n%s", log)
		}
		stopped(20 * time.Second)
		if log.count("\n") != 1 || log.count(`level=WARN msg="the relay did not run`) != 1 || log.count(" for=21s at_most=15s\n") != 1 {
			t.Error(log)
		}
		for range 3 {
			stopped(3 * time.Second)
		}
		if log.count("\n") != 1 {
			t.Errorf("it is told each time:\n%s", log)
		}
		time.Sleep(tellEvery)
		synctest.Wait()
		if log.count("\n") != 2 || log.count(" for=12s ") != 1 {
			t.Error(log)
		}
		cancel()
		<-done
	})
}
