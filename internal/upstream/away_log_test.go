package upstream

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xdstest"
)

// If an unreachable origin fails for a new reason, the relay logs that reason too. It limits how
// often, because reasons may alternate.
func TestAwayForAnotherReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log xdstest.Log
		m, err := telemetry.New(telemetry.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s := newOrigin(OriginOptions{Name: "o"}, m.Origin("o"), log.Logger())
		says := func(away, another int) {
			t.Helper()
			if a, b := log.Count(`"origin is away"`), log.Count(`"origin is still away, with another error"`); a != away || b != another {
				t.Errorf("logged %d and %d times, want %d and %d:\n%s", a, b, away, another, &log)
			}
		}
		s.ended(attemptEnd{opened: true}, errors.New("refused"), time.Now())
		s.ended(attemptEnd{opened: true}, errors.New("no such host"), time.Now())
		says(1, 0)
		time.Sleep(logAwayEvery)
		s.ended(attemptEnd{opened: true}, errors.New("refused"), time.Now())
		says(1, 0)
		s.ended(attemptEnd{opened: true}, errors.New("no such host"), time.Now())
		s.ended(attemptEnd{opened: true}, errors.New("certificate"), time.Now())
		says(1, 1)
		time.Sleep(logAwayEvery)
		s.ended(attemptEnd{opened: true}, errors.New("no such host"), time.Now())
		says(1, 1)
		s.responded()
		s.respondedEnded()
		s.ended(attemptEnd{opened: true}, errors.New("no such host"), time.Now())
		says(2, 1)
	})
}
