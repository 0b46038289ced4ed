//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

const (
	// wanted is how many clients want the changed name, in the study of clients that do not.
	wanted = 10
	// turnMost is how often a turn is tried until no garbage collection happens in it.
	turnMost = 3
)

// Tests use smaller values.
var (
	// changesPerTurn is how many changes one turn has, because a single one is too short to
	// measure.
	changesPerTurn = 40
	// pingEvery is how often the relay pings a silent connection. Everything that happens at rest
	// happens within that time.
	pingEvery = time.Minute
)

// turn is the cost of one server during its changes, and during the other's.
type turn struct {
	cost  float64 // CPU µs for each change, including its use at rest
	late  float64 // ms from the trigger, for each change
	bytes float64 // allocated bytes for each change
	took  time.Duration
	rest  float64 // CPU of the other server meanwhile, % of a core
}

// studyUnwanted measures the cost of connected clients that do not want the changed name. The same
// change is made with and without them, in turn.
func studyUnwanted(ctx context.Context, o *options) (*study, error) {
	s := &study{
		What: fmt.Sprintf("A change of one load assignment that %d clients want; %d others each asked for %d of %d; %d rounds of %d",
			wanted, o.load.Clients, o.load.Names, o.load.Clusters, o.rounds, changesPerTurn),
		Columns: []string{"CPU µs/change", "µs more than without the others", "CPU at rest included", "× of that", "at rest meanwhile, % of a core",
			"alloc B/change", "from trigger ms", "at rest for a minute, % of a core"},
	}
	var all []*contender
	defer stopAll(&all)
	var in, holds []*contender // without the others and with them; a further server with as many clients
	for _, e := range o.among(nameRelay) {
		for _, others := range []int{0, o.load.Clients} {
			c, err := o.unwanted(ctx, &all, e, others)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", e.name, err)
			}
			in = append(in, c)
		}
	}
	for _, e := range o.among(nameBare) {
		c, err := o.begun(ctx, &all, e)
		if err != nil {
			return nil, err
		}
		if err := c.connect(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", e.name, err)
		}
		holds = append(holds, c)
	}
	rest, err := restingTogether(ctx, slices.Concat(in, holds), pingEvery)
	if err != nil {
		return nil, err
	}
	turns := make([][]turn, len(in))
	for r := range warmups + o.rounds {
		o.log("round %d of %d", r-warmups+1, o.rounds)
		for k := range in {
			i := (k + r) % len(in)
			t, err := o.turn(ctx, in[i], in[1-i])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", in[i].name, err)
			}
			if r >= warmups {
				turns[i] = append(turns[i], t)
			}
		}
	}
	for i, c := range in {
		name := fmt.Sprintf("%s, the %d alone", c.name, wanted)
		if i > 0 {
			name = fmt.Sprintf("%s, with %d others", c.name, o.load.Clients)
		}
		of := func(value func(turn) float64) []float64 { return valuesOf(turns[i], value) }
		cost := func(t turn) float64 { return t.cost }
		s.add(name, many(netCosts(turns[i], turns[1-i])), differences(netCosts(turns[i], turns[1-i]), netCosts(turns[0], turns[1])),
			many(of(cost)), quotients(of(cost), valuesOf(turns[0], cost)),
			many(valuesOf(turns[1-i], func(t turn) float64 { return t.rest })),
			many(of(func(t turn) float64 { return t.bytes })), many(of(func(t turn) float64 { return t.late })), once(rest[i]))
	}
	for i, c := range holds {
		s.add(fmt.Sprintf("%s, with %d", c.name, o.load.Clients), append(make([]*spread, len(s.Columns)-1), once(rest[len(in)+i]))...)
	}
	if len(in) == 0 {
		return s, nil
	}
	return s, o.profilesAtRest(ctx, in[1])
}

func valuesOf(turns []turn, value func(turn) float64) (out []float64) {
	for _, t := range turns {
		out = append(out, value(t))
	}
	return out
}

// netCosts are the costs of the changes alone. It subtracts the server's use at rest, measured over
// the same time in the other's turn of the same round.
func netCosts(own, others []turn) (out []float64) {
	for i, t := range own {
		atRest := others[i].rest / 100 * float64(t.took.Microseconds()) / float64(changesPerTurn)
		out = append(out, t.cost-atRest)
	}
	return out
}

// unwanted starts a server with the clients that want the changed name, and this many others.
func (o *options) unwanted(ctx context.Context, all *[]*contender, e *entry, others int) (*contender, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startMost, fmt.Errorf("not connected after %s", startMost))
	defer cancel()
	c, err := o.begun(ctx, all, e)
	if err != nil {
		return nil, err
	}
	if err := c.warm(ctx); err != nil {
		return nil, err
	}
	if others > 0 {
		l := c.load
		l.Clients, l.Asks = others, &l.Names // all but the first block
		crowd, err := c.join(ctx, l)
		if err != nil {
			return nil, err
		}
		if _, err := c.awaitOf(ctx, crowd, 0); err != nil {
			return nil, err
		}
	}
	c.load.Clients = wanted
	return c, c.connect(ctx)
}

// turn makes changes on one server while another is at rest. Garbage is collected beforehand, and
// not meanwhile. Otherwise the cost of marking the heap would fall on the change that fills it up.
func (o *options) turn(ctx context.Context, busy, idle *contender) (turn, error) {
	for range turnMost {
		for _, c := range []*contender{busy, idle} {
			if err := c.collect(ctx); err != nil {
				return turn{}, err
			}
		}
		// One change that is not counted fills the pools again.
		if _, err := busy.changes(ctx, 1); err != nil {
			return turn{}, err
		}
		was, err := garbageOf(ctx, busy, idle)
		if err != nil {
			return turn{}, err
		}
		// Reading the counter allocates too. The result is the difference of two readings.
		before, err := garbageOf(ctx, busy, idle)
		if err != nil {
			return turn{}, err
		}
		t, err := busy.turn(ctx, idle)
		if err != nil {
			return turn{}, err
		}
		after, err := garbageOf(ctx, busy, idle)
		if err != nil {
			return turn{}, err
		}
		if before[0].collections == after[0].collections && before[1].collections == after[1].collections {
			asking := before[0].allocated - was[0].allocated
			t.bytes = (after[0].allocated - before[0].allocated - asking) / float64(changesPerTurn)
			return t, nil
		}
		o.log("garbage was collected meanwhile: once more")
	}
	return turn{}, fmt.Errorf("garbage was collected in each of %d turns", turnMost)
}

// turn runs a turn without looking at garbage.
func (c *contender) turn(ctx context.Context, idle *contender) (t turn, err error) {
	for _, c := range []*contender{idle, c} {
		if _, err := settleFor(c.proc.pid(), leaveMost); err != nil {
			return t, err
		}
	}
	begin := time.Now()
	was, err := cpus(c, idle)
	if err != nil {
		return t, err
	}
	late, err := c.changes(ctx, changesPerTurn)
	if err != nil {
		return t, err
	}
	if _, err := settleFor(c.proc.pid(), leaveMost); err != nil {
		return t, err
	}
	now, err := cpus(c, idle)
	t.took = time.Since(begin)
	t.cost = float64((now[0] - was[0]).Nanoseconds()) / 1e3 / float64(changesPerTurn)
	t.rest = 100 * float64(now[1]-was[1]) / float64(t.took)
	t.late = late
	return t, err
}

// changes makes n changes, one after the other. It returns the mean time in milliseconds from the
// trigger until all clients have one.
func (c *contender) changes(ctx context.Context, n int) (float64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, roundMost, fmt.Errorf("not done after %s", roundMost))
	defer cancel()
	late := int64(0)
	for range n {
		if err := c.prepare(ctx); err != nil {
			return 0, err
		}
		begin := monotonic()
		seen, err := c.push(ctx)
		if err != nil {
			return 0, err
		}
		late += seen.Last - begin
	}
	return float64(late) / 1e6 / float64(n), nil
}

// garbage is what a relay has allocated, and its number of collections.
type garbage struct{ allocated, collections float64 }

func garbageOf(ctx context.Context, of ...*contender) (out []garbage, err error) {
	for _, c := range of {
		v, err := c.admin.sums(ctx, "go_memstats_alloc_bytes_total", "go_gc_duration_seconds_count")
		if err != nil {
			return nil, err
		}
		out = append(out, garbage{v[0], v[1]})
	}
	return out, nil
}

func cpus(of ...*contender) (out []time.Duration, err error) {
	for _, c := range of {
		used, err := cpu(c.proc.pid())
		if err != nil {
			return nil, err
		}
		out = append(out, used)
	}
	return out, nil
}

// restingTogether is the CPU use of several servers at rest, in the same time, in percent of a
// core. Their garbage was collected before.
func restingTogether(ctx context.Context, all []*contender, long time.Duration) (out []float64, err error) {
	for _, c := range all {
		if err := c.collect(ctx); err != nil {
			return nil, err
		}
	}
	for _, c := range all {
		if _, err := settleFor(c.proc.pid(), leaveMost); err != nil {
			return nil, err
		}
	}
	was, err := cpus(all...)
	if err != nil {
		return nil, err
	}
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(long):
	}
	now, err := cpus(all...)
	for i := range now {
		out = append(out, 100*float64(now[i]-was[i])/float64(long))
	}
	return out, err
}
