package hostile

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"xdsrelay/internal/xdstest"
)

// threat is an attack with its bounds.
type threat struct {
	name  string
	short int // size of the attack in the short form
	full  int
	// refused are reasons of refusals. At least one must be counted, which shows that the relay
	// itself stopped the attack.
	refused []string
	// peak bounds the resident memory during the attack; 0: as much as the limits allow.
	peak int64
	// least is the time until the attack has an effect.
	least time.Duration
	// slows: neither grpc nor Go bounds the attack's CPU cost, so the p99 of honest clients has no
	// bound. docs/security.md has the threat and the operator's measures.
	slows bool
}

// polls bounds the resident memory while REST polls take rest_bytes: as much again is garbage before
// the next collection (docs/security.md), and 88 MB are for everything else.
const polls = (2*256 + 88) << 20

// Attacks with a bound of memory come first: in the short form, earlier ones leave theirs.
var threats = []threat{
	{name: "half REST polls", short: 40, full: 400, peak: polls, least: 4 * time.Second, refused: []string{"rest_bytes"}},
	{name: "whole REST polls", short: 40, full: 400, peak: polls, least: 4 * time.Second, refused: []string{"rest_bytes"}},
	{name: "dense nodes", short: 50, full: 100, peak: 1 << 30},
	{name: "rapid reset", short: 4, full: 8, slows: true},
	{name: "silent connections", short: 300, full: 3000},
	{name: "silent TLS connections", short: 300, full: 3000, refused: []string{"tls_handshake"}},
	{name: "half requests", short: 2, full: 4},
	{name: "huge requests", short: 4, full: 8, refused: []string{"request_bytes"}},
	{name: "a million names at once", short: 1, full: 2, refused: []string{"names_per_stream"}},
	{name: "a million names, by one", short: 2, full: 10, slows: true},
	{name: "nodes with own keys", short: 400, full: 10_000},
	{name: "large nodes", short: 100, full: 1000},
	{name: "never reading", short: 20, full: 100, least: 4 * time.Second, refused: []string{"send_timeout", "pinned_bytes"}},
	{name: "NACK loops", short: 4, full: 20},
	{name: "asking again and again", short: 2, full: 8, refused: []string{"requests_per_second"}},
}

// bounds are those of a form. The short form is for busy machines, and checks no times.
type bounds struct {
	clients, rounds int
	ratio           float64       // the p99 under attack divided by that without
	memory          int64         // bytes over the first baseline, afterwards, plus a record for each goroutine
	least           time.Duration // duration of an attack
	// recovery bounds the time until everything of an attack is released.
	recovery time.Duration
}

func limits() bounds {
	if full() {
		return bounds{clients: 200, rounds: 60, ratio: 2, memory: 48 << 20, least: 5 * time.Second, recovery: time.Minute}
	}
	return bounds{clients: 40, rounds: 8, memory: 64 << 20, least: 750 * time.Millisecond, recovery: time.Minute}
}

// Whatever hostile clients do, the relay does not crash, and honest streams do not break and stay
// about as fast. Afterwards everything is released.
func TestHostileClients(t *testing.T) {
	b := limits()
	o := newOrigin(t)
	r := serve(t, o.addr)
	c := newCrowd(t, o, r.at, b.clients)
	c.rounds(t, 2*b.rounds) // warms up the relay
	first := r.settled(t)
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "threat\tdone\tin\tMB before\tpeak\tafter\tp99 without\tunder attack\tratio\tcores without\tunder\trefused")
	for _, th := range threats {
		t.Run(th.name, func(t *testing.T) { attacked(t, r, c, th, b, first, w) })
	}
	r.recovered(t, b, first)
	_ = w.Flush() // writes to memory
	text := fmt.Sprintf("%d honest clients, %d rounds without, under, and without attack; %s, %d cores\n%s", b.clients, b.rounds, runtime.Version(), runtime.NumCPU(), &table)
	if full() || os.Getenv("HOSTILE_SHOW") != "" {
		fmt.Print(text)
	}
	if file := os.Getenv("HOSTILE_TABLE"); file != "" {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Error(err)
		}
	}
}

// settled returns the relay's use of resources at rest.
func (r *relay) settled(t testing.TB) usage {
	t.Helper()
	var u usage
	r.read("/debug/pprof/heap?gc=1")
	err := xdstest.Poll(xdstest.Patience, 20*time.Millisecond, func() error {
		next, err := r.usage()
		if err != nil {
			return err
		}
		const little = 1 << 20 // for the scrape itself
		still := max(next.Resident-u.Resident, u.Resident-next.Resident) < little && next.Goroutines == u.Goroutines
		u = next
		if !still {
			return xdstest.ErrNotYet
		}
		return nil
	})
	if err != nil {
		t.Fatalf("rest: %v", err)
	}
	return u
}

// recovered waits until everything of an attack is released.
func (r *relay) recovered(t *testing.T, b bounds, first usage) (after usage) {
	t.Helper()
	err := xdstest.Poll(b.recovery, 2*time.Second, func() error {
		r.read("/debug/pprof/heap?gc=1")
		u, err := r.usage()
		if err != nil {
			return err
		}
		after = u
		switch {
		case u.Resident > first.Resident+b.memory+int64(r.most-first.Goroutines)*record:
			return fmt.Errorf("%s are resident, and were %s; there have been %d goroutines", mb(u.Resident), mb(first.Resident), r.most)
		case u.Open > first.Open+20:
			return fmt.Errorf("%d descriptors are open, and were %d", u.Open, first.Open)
		case u.Goroutines > first.Goroutines+50:
			return fmt.Errorf("%d goroutines, and there were %d", u.Goroutines, first.Goroutines)
		}
		return nil
	})
	if err == nil {
		return after
	}
	t.Errorf("afterwards: %v", err)
	for _, l := range strings.Split(r.read("/metrics"), "\n") {
		if strings.HasPrefix(l, "go_memstats_") {
			t.Log(l)
		}
	}
	if after.Goroutines > first.Goroutines+50 {
		t.Logf("%s", r.read("/debug/pprof/goroutine?debug=1"))
	}
	return after
}

// attackResult is the result of an attack.
type attackResult struct {
	before, after usage
	peak, did     int64
	took          time.Duration
	was, is       time.Duration // the p99 of honest clients without it, and under it
	idle, load    float64       // CPU cores that the relay used, without it and under it
}

func (m *attackResult) ratio() float64 { return float64(m.is) / float64(max(m.was, 1)) }

// attacked checks the bounds of one threat. If honest clients were too slow, it repeats the attack,
// to tell the threat from other load on the machine.
func attacked(t *testing.T, r *relay, c *crowd, th threat, b bounds, first usage, w *tabwriter.Writer) {
	name, m := th.name, runAttack(t, r, c, th, b, first)
	// On a busy machine two times cannot be compared. There it suffices that each change arrived
	// and no stream broke.
	if full() && !th.slows && m.ratio() > b.ratio {
		t.Logf("once more: the p99 of honest clients was %.1f times as long", m.ratio())
		name, m = name+", again", runAttack(t, r, c, th, b, first)
		if m.ratio() > b.ratio {
			t.Errorf("the p99 of honest clients is %s under attack, and %s without: %.1f times, bound %.1f", round(m.is), round(m.was), m.ratio(), b.ratio)
		}
	}
	_, _ = fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%.2f\t%.2f\t%.2f\t%s\n", name, m.did, m.took.Round(100*time.Millisecond),
		mb(m.before.Resident), mb(m.peak), mb(m.after.Resident), round(m.was), round(m.is), m.ratio(), m.idle, m.load, refused(m.before, m.after))
	for _, reason := range th.refused {
		if m.after.Refused[reason] > m.before.Refused[reason] {
			return
		}
	}
	if full() && len(th.refused) > 0 { // a slow machine may not be fast enough to reach the limit
		t.Errorf("nothing was refused for %s", strings.Join(th.refused, " or "))
	}
}

// runAttack runs an attack, and measures the relay and its honest clients before, during and after
// it.
func runAttack(t *testing.T, r *relay, c *crowd, th threat, b bounds, first usage) *attackResult {
	t.Helper()
	m := new(attackResult)
	use := func() (u usage) {
		u, err := r.usage()
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	m.before = use()
	broken := c.broken()
	at, work := time.Now(), r.Usage().CPU
	calm := c.rounds(t, b.rounds)
	m.idle = float64(r.Usage().CPU-work) / float64(time.Since(at))
	r.forget()
	size := th.short
	if full() {
		size = th.full
	}
	a := launch(t, th.name, r.at, size)
	began, work := time.Now(), r.Usage().CPU
	under := c.rounds(t, b.rounds)
	if rest := max(b.least, th.least) - time.Since(began); rest > 0 {
		<-time.After(rest)
	}
	m.took = time.Since(began)
	m.load = float64(r.Usage().CPU-work) / float64(m.took)
	m.peak = r.peak()
	if th.peak > 0 && m.peak > th.peak {
		t.Errorf("%s MB were resident, bound %s", mb(m.peak), mb(th.peak))
	}
	use() // for the current number of goroutines
	m.did = a.stop()
	calm = append(calm, c.rounds(t, b.rounds)...)
	m.after = use()
	if full() { // otherwise everything is released only at the end
		m.after = r.recovered(t, b, first)
	}
	if n := c.broken() - broken; n > 0 {
		t.Errorf("%d streams of honest clients broke", n)
	}
	m.was, m.is = median(calm), median(under)
	return m
}

func mb(n int64) string { return fmt.Sprintf("%.0f", float64(n)/(1<<20)) }

func round(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }

// refused lists the relay's refusals between two measurements, by reason.
func refused(before, after usage) string {
	var out []string
	for reason, n := range after.Refused {
		if d := n - before.Refused[reason]; d > 0 {
			out = append(out, fmt.Sprintf("%s:%.0f", reason, d))
		}
	}
	if len(out) == 0 {
		return "-"
	}
	return strings.Join(out, " ")
}
