package wait

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"xdsrelay/internal/admin/keystatus"
	"xdsrelay/internal/terminal"
	"xdsrelay/internal/xds"
)

// A version that crashes clients is not reached, whatever the rest have; a few clients may leave.
func TestWaitWhenClientsVanish(t *testing.T) {
	type answer struct {
		after            time.Duration // since the answer before
		clients, reached int
		restarted        bool
		unknown, unused  bool
	}
	const second = time.Second
	for name, c := range map[string]struct {
		answers []answer
		reached bool
		gone    int
	}{
		"a moment ago":           {[]answer{{0, 100, 0, false, true, false}, {second, 40, 40, false, false, false}}, false, 0},
		"at once":                {[]answer{{0, 100, 20, false, false, false}, {second, 40, 40, false, false, false}}, false, 0},
		"and come back":          {[]answer{{0, 100, 20, false, false, false}, {second, 40, 40, false, false, false}, {20 * second, 100, 99, false, false, false}}, true, 0},
		"for good":               {[]answer{{0, 100, 20, false, false, false}, {second, 40, 40, false, false, false}, {Settle, 40, 40, false, false, false}}, false, 60},
		"one by one":             {[]answer{{0, 100, 0, false, false, false}, {30 * second, 96, 0, false, false, false}, {30 * second, 92, 0, false, false, false}, {30 * second, 88, 88, false, false, false}, {30 * second, 84, 84, false, false, false}, {Settle, 84, 84, false, false, false}}, false, 16},
		"few, a moment ago":      {[]answer{{0, 100, 0, false, false, false}, {second, 91, 91, false, false, false}}, false, 0},
		"few, for good":          {[]answer{{0, 100, 0, false, false, false}, {second, 91, 91, false, false, false}, {Settle, 91, 91, false, false, false}}, true, 0},
		"before the version":     {[]answer{{0, 100, 0, false, true, false}, {second, 40, 0, false, true, false}, {Settle, 40, 0, false, true, false}, {second, 40, 40, false, false, false}}, true, 0},
		"all of them":            {[]answer{{0, 100, 20, false, false, false}, {second, 0, 0, false, true, true}, {Settle, 0, 0, false, true, true}}, false, 100},
		"to another relay":       {[]answer{{0, 100, 20, false, false, false}, {10 * second, 30, 30, true, false, false}, {Settle, 30, 30, false, false, false}}, true, 0},
		"after they came to all": {[]answer{{0, 100, 20, false, false, false}, {second, 110, 110, false, false, false}}, true, 0},
		"while a few come":       {[]answer{{0, 100, 20, false, false, false}, {second, 40, 40, false, false, false}, {30 * second, 60, 60, false, false, false}, {30 * second, 60, 60, false, false, false}}, false, 40},
	} {
		t.Run(name, func(t *testing.T) {
			w := &waiter{Options: Options{Percent: 99, Clients: 1, Settle: Settle, Lost: 10}}
			now := time.Unix(1e9, 0)
			started := now
			for _, a := range c.answers {
				if now = now.Add(a.after); a.restarted {
					started = now
				}
				w.record(keystatus.Progress{Started: started, InUse: !a.unused, Known: !a.unknown, Clients: a.clients, Reached: a.reached, Pending: a.clients - a.reached}, now)
			}
			if w.reached() != c.reached || w.gone() != c.gone {
				t.Errorf("reached: %v, want %v; gone: %d, want %d: %+v", w.reached(), c.reached, w.gone(), c.gone, w.presence)
			}
		})
	}
}

// After a time without answers, clients have the whole settle time to come back.
func TestWaitWhenClientsVanishUnseen(t *testing.T) {
	w := &waiter{Options: Options{Percent: 99, Clients: 1, Settle: Settle, Lost: 10}}
	now := time.Unix(1e9, 0)
	w.record(keystatus.Progress{InUse: true, Known: true, Clients: 100, Reached: 20}, now)
	w.away = context.DeadlineExceeded
	now = now.Add(2 * Settle)
	w.record(keystatus.Progress{InUse: true, Known: true, Clients: 40, Reached: 40}, now)
	if w.reached() || w.gone() > 0 {
		t.Errorf("reached: %v, gone: %d", w.reached(), w.gone())
	}
	if text := w.text(); !strings.Contains(text, "60 more left recently") {
		t.Error(text)
	}
	w.record(w.last, now.Add(Settle))
	var out bytes.Buffer
	w.Out, w.Format = &out, terminal.FormatJSON
	if err := w.end(isLost, "", ErrUnreachable); err != ErrUnreachable || !strings.Contains(out.String(), `"clients_expected": 40`) || !strings.Contains(out.String(), `"clients_gone": 60`) {
		t.Errorf("%v %s", err, &out)
	}
}

// The waiter expects the clients that it has seen.
func TestWaiterCountsOnThoseThatWereThere(t *testing.T) {
	now := time.Unix(1e9, 0)
	first, second := now.Add(-time.Hour), now.Add(-time.Second)
	w := &waiter{Options: Options{Percent: 99, Clients: 1, Settle: Settle}}
	record := func(started time.Time, clients, reached, nacking int) bool {
		w.record(keystatus.Progress{Started: started, InUse: true, Known: true, Clients: clients, Reached: reached, Nacking: nacking, Pending: clients - reached - nacking}, now)
		return w.reached()
	}
	for _, c := range []struct {
		started                   time.Time
		clients, reached, nacking int
		want                      bool
	}{
		{first, 0, 0, 0, false},
		{first, 100, 98, 0, false},
		{second, 1, 1, 0, false}, // of a hundred
		{second, 99, 99, 0, true},
		{second, 150, 148, 2, false},
		{second, 150, 149, 1, true},
	} {
		if got := record(c.started, c.clients, c.reached, c.nacking); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	if w.unreachable != 0 {
		t.Errorf("%d answers by which it cannot be reached", w.unreachable)
	}
	record(second, 100, 90, 2)
	record(second, 100, 90, 2)
	if w.unreachable != 2 {
		t.Errorf("%d answers by which it cannot be reached", w.unreachable)
	}
	now = now.Add(Settle)
	if !record(second, 1, 1, 0) {
		t.Error("those that do not come back are waited for longer")
	}
}

// A stopping relay has fewer clients each moment: the last of them are neither a success nor a
// failure.
func TestWaitWhileTheRelayStops(t *testing.T) {
	now := time.Unix(1e9, 0)
	for name, last := range map[string]keystatus.Progress{
		"the last one has it":     {Known: true, InUse: true, Clients: 1, Reached: 1, Percent: 100, Draining: true},
		"the last one refuses it": {Known: true, InUse: true, Clients: 1, Nacking: 1, Draining: true},
		"no client is left":       {Known: true, InUse: true, Draining: true},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			w := &waiter{Options: Options{Percent: 99, Clients: 1, Settle: Settle, Timeout: time.Minute, Out: &out, Errs: &errs, Format: terminal.FormatText}}
			w.record(keystatus.Progress{Known: true, InUse: true, Clients: 100, Reached: 50, Pending: 50}, now)
			for range 3 {
				w.record(last, now)
				w.show(now)
				if w.reached() || w.unreachable > 0 {
					t.Fatalf("%+v", w)
				}
			}
			if got := errs.String(); got != "relay: the relay is stopping; waiting for it to come back\n" {
				t.Errorf("%q", got)
			}
			if err := w.late(); err != ErrLate || !strings.Contains(out.String(), "not reached within 1m0s: the relay is stopping") {
				t.Errorf("%v %q", err, out.String())
			}
			// It is back with one of the clients.
			w.record(keystatus.Progress{Started: now, Known: true, InUse: true, Clients: 1, Reached: 1}, now)
			if w.reached() {
				t.Error("one of a hundred is taken for all")
			}
		})
	}
}

// A terminal has a bar in one line.
func TestBar(t *testing.T) {
	var out, errs bytes.Buffer
	width := 200
	w := &waiter{Options: Options{Key: "k", Out: &out, Errs: &errs, Format: terminal.FormatText}, bar: true, answered: true, width: func() int { return width }}
	w.last = keystatus.Progress{InUse: true, Known: true, Clients: 4, Reached: 1, Pending: 3, Percent: 25}
	show := func() string {
		out.Reset()
		w.show(time.Now())
		return out.String()
	}
	if got := show(); got != "\r\x1b[K[#######.......................] 1 of 4 clients (25.0 %), 3 pending" {
		t.Errorf("%q", got)
	}
	// A longer line would leave its beginning on the terminal.
	width = 40
	if got := show(); got != "\r\x1b[K[#######.......................] 1 of …" {
		t.Errorf("%q", got)
	}
	// The line is removed before other output.
	width = 80
	w.last = keystatus.Progress{}
	if got := show(); got != "\r\x1b[K\r\x1b[Kkey k is not in use; waiting for a client with this key" || errs.String() != "relay: key k is not in use; waiting for a client with this key\n" {
		t.Errorf("%q %q", got, errs.String())
	}
}

func TestSumOfProgress(t *testing.T) {
	at := time.Now()
	of := func(known bool, clients, reached, nacking int) progress {
		return progress{Progress: keystatus.Progress{InUse: clients > 0, Known: known, Clients: clients, Reached: reached, Nacking: nacking,
			Started: at.Add(time.Duration(clients)), Laggard: &keystatus.Laggard{Node: fmt.Sprint(clients), Since: at.Add(-time.Duration(clients))}}}
	}
	draining := of(true, 1, 1, 0)
	draining.Draining = true
	held := of(true, 0, 0, 0) // by a relay that serves followers only
	held.InUse = true
	for name, c := range map[string]struct {
		all  []progress
		want string
	}{
		"one":                    {[]progress{of(true, 4, 3, 1)}, "true 4 3 1 75 false 4"},
		"two":                    {[]progress{of(true, 4, 4, 0), of(true, 6, 3, 2)}, "true 10 7 2 70 false 6"},
		"one does not know it":   {[]progress{of(true, 4, 4, 0), of(false, 6, 0, 0)}, "false 10 4 0 40 false 6"},
		"the other does not":     {[]progress{of(false, 6, 0, 0), of(true, 4, 4, 0)}, "false 10 4 0 40 false 6"},
		"one without clients":    {[]progress{of(false, 0, 0, 0), of(true, 4, 4, 0)}, "true 4 4 0 100 false 4"},
		"the key is not in use":  {[]progress{of(false, 0, 0, 0), of(false, 0, 0, 0)}, "false 0 0 0 0 false 0"},
		"the owner without them": {[]progress{of(false, 0, 0, 0), held}, "true 0 0 0 0 false 0"},
		"one drains":             {[]progress{of(true, 4, 4, 0), draining}, "true 5 5 0 100 true 4"},
	} {
		p := sum(c.all)
		if got := fmt.Sprintln(p.Known, p.Clients, p.Reached, p.Nacking, p.Percent, p.Draining, p.Laggard.Node); strings.TrimSpace(got) != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	if longest(nil, nil) != nil {
		t.Error("somebody lags")
	}
}

// Without an answer, JSON has the question.
func TestDataWithoutAnAnswer(t *testing.T) {
	var out, errs bytes.Buffer
	w := &waiter{Options: Options{Key: "edge", Version: "v1", Type: xds.ClusterType, Format: terminal.FormatJSON, Out: &out, Errs: &errs}}
	w.record(keystatus.Progress{Key: "edge", InUse: true, Draining: true}, time.Now())
	if err := w.late(); err != ErrLate {
		t.Error(err)
	}
	for _, want := range []string{`"reason": "the relay is stopping; waiting for it to come back"`, `"key": "edge"`, `"type": "type.googleapis.com/envoy.config.cluster.v3.Cluster"`, `"version": "v1"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in\n%s", want, &out)
		}
	}
}
