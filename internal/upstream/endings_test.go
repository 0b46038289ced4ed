package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"xdsrelay/internal/xds"
)

// An origin that ends each stream soon after it has answered is told of once in a
// minute, with how many, and once more when it does so no more.
func TestEndingsAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(logged)
		e := newEndings(slog.New(slog.NewTextHandler(log, nil)))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); e.run(ctx) }()
		lines := log.count
		err := errors.New("because")

		for range 1000 { // all keys have one, and another: it was restarted twice
			e.add(err, 1, time.Now())
			e.add(err, 2, time.Now())
		}
		synctest.Wait()
		if log.String() != "" {
			t.Fatalf("it is told: %s", log)
		}
		time.Sleep(2 * countEvery) // those are not counted any more
		const minutes = 5
		for range minutes {
			for i := range 60 {
				e.add(err, 1+i, time.Now())
				time.Sleep(time.Second)
			}
		}
		synctest.Wait()
		if n := lines("origin keeps ending streams"); n < minutes || n > minutes+1 {
			t.Errorf("it is told %d times in %d minutes: %s", n, minutes, log)
		}
		if lines("ended=3 within=1m0s error=because") != 1 {
			t.Errorf("it does not say how many: %s", log)
		}
		time.Sleep(3 * countEvery)
		synctest.Wait()
		if lines("origin ends streams no more") != 1 || lines(fmt.Sprintf("ended=%d", 60*minutes)) != 1 {
			t.Errorf("that it is over is not told: %s", log)
		}
		n := lines("\n")
		time.Sleep(time.Hour)
		if lines("\n") != n {
			t.Errorf("it goes on: %s", log)
		}
		e.add(err, 3, time.Now()) // again
		synctest.Wait()
		if lines("\n") != n+1 {
			t.Errorf("it is not told again: %s", log)
		}
		cancel()
		<-done
	})
}

// P54: it is no failure, and nobody is told that an origin is away, but it shows.
func TestP54_AnOriginThatEndsEachStream(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		log := new(logged)
		o := startFake(t)
		r := startRelay(t, Options{Variant: v, Log: slog.New(slog.NewTextHandler(log, nil))}, o.address)
		_, sink := r.stream(named(rds, "a"))
		for range manyShort {
			s := o.serve(1)
			s.send(resp{typ: rds, res: clusters("a")})
			sink.untilNames(t, rds, "a")
			s.request()
			if log.count("keeps ending") > 0 {
				t.Error("it is told too soon")
			}
			s.done <- nil
		}
		o.next()
		log.says(t, "origin keeps ending streams")
		if log.count("away") > 0 {
			t.Errorf("it is said to be away: %s", log)
		}
	})
}
