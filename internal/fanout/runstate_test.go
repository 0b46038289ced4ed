package fanout

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
)

// interleaver runs actors one atomic step at a time, in an order that a seed
// decides. An actor gives way wherever runState calls step.
type interleaver struct {
	rng    *rand.Rand
	actors []*actor
	at     *actor
}

type actor struct {
	resume, parked chan struct{}
	done           bool
}

// spawn adds an actor. It may be called by a running actor.
func (il *interleaver) spawn(f func()) {
	a := &actor{resume: make(chan struct{}), parked: make(chan struct{})}
	il.actors = append(il.actors, a)
	go func() {
		<-a.resume
		f()
		a.done = true
		a.parked <- struct{}{}
	}()
}

// run until every actor is done.
func (il *interleaver) run() {
	step = func() {
		a := il.at
		a.parked <- struct{}{}
		<-a.resume
	}
	defer func() { step = func() {} }()
	for {
		var live []*actor
		for _, a := range il.actors {
			if !a.done {
				live = append(live, a)
			}
		}
		if len(live) == 0 {
			return
		}
		il.at = live[il.rng.IntN(len(live))]
		il.at.resume <- struct{}{}
		<-il.at.parked
	}
}

// model is a stream as runState sees it: publications raise a version, workers
// send the newest, completions come whenever the transport likes.
type model struct {
	il        *interleaver
	r         runState
	queue     int // how often the stream is in the run queue
	running   int
	inFlight  int
	published [2]int // by dirty bit
	delivered [2]int
	closed    bool
	fail      string
}

func (m *model) check(ok bool, format string, args ...any) {
	if !ok && m.fail == "" {
		m.fail = fmt.Sprintf(format, args...)
	}
}

func (m *model) push() {
	m.queue++
	m.check(m.queue == 1, "queued %d times", m.queue)
	m.il.spawn(m.work)
}

func (m *model) publish(bit int) {
	m.published[bit]++
	m.r.mark(1 << bit)
	if m.r.tryQueue() {
		m.push()
	}
}

// work is stream.work, with a send that always has something newer to say.
func (m *model) work() {
	m.queue--
	if !m.r.enter() {
		return
	}
	m.running++
	m.check(m.running == 1 && m.inFlight == 0, "%d workers, %d in flight", m.running, m.inFlight)
	for bit := range 2 {
		if m.r.dirty.Load()&(1<<bit) == 0 {
			continue
		}
		m.r.unmark(1 << bit)
		if newest := m.published[bit]; newest > m.delivered[bit] {
			m.delivered[bit] = newest
			n := m.r.send()
			m.inFlight++
			m.check(m.inFlight == 1, "%d in flight", m.inFlight)
			m.il.spawn(func() { // may come before the worker leaves
				m.inFlight--
				if m.r.completed(n) {
					m.push()
				}
				m.check(!m.r.completed(n-1) && !m.r.completed(n+7), "a number that is not in flight counts")
			})
			break
		}
	}
	m.running--
	queue, ended := m.r.leave()
	m.check(!ended || m.closed, "ended, but nobody closed it")
	if queue {
		m.push()
	}
}

// No order of publishers, workers, completions and the end of the stream loses
// a wake-up, queues a stream twice, or gives it to two workers.
func TestRunStateInterleavings(t *testing.T) {
	for seed := range uint64(3000) {
		m := &model{}
		m.il = &interleaver{rng: rand.New(rand.NewPCG(seed, 1))}
		for i := range 4 {
			m.il.spawn(func() { m.publish(i % 2) })
		}
		closes := seed%3 == 0
		if closes {
			m.il.spawn(func() {
				busy := m.r.close()
				m.closed = true
				m.check(busy == (m.running > 0) || busy, "closed, and a worker has it unseen")
			})
		}
		m.il.run()
		m.check(m.queue == 0 && m.running == 0 && m.inFlight == 0, "at rest: queued %d, running %d, in flight %d", m.queue, m.running, m.inFlight)
		m.check(closes || m.delivered == m.published, "lost a wake-up: published %v, delivered %v", m.published, m.delivered)
		if m.fail != "" {
			t.Fatalf("seed %d: %s", seed, m.fail)
		}
	}
}

// A worker that had the stream when it closed reports so, and none enters
// after.
func TestRunStateClose(t *testing.T) {
	var r runState
	r.mark(1)
	if !r.tryQueue() || !r.enter() {
		t.Fatal("cannot enter")
	}
	if !r.close() {
		t.Fatal("close does not see the worker")
	}
	r.mark(1)
	if queue, ended := r.leave(); queue || !ended {
		t.Fatalf("leave: queue %v, ended %v", queue, ended)
	}
	if r.tryQueue() || r.enter() {
		t.Fatal("a closed stream runs")
	}
}

// A worker lets other goroutines run after every yieldAfter streams. grpc's writers then send what they
// have, and give their buffers back.
func TestWorkersLetWritersRun(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const turns = 100
	s := newScheduler()
	for i := range uint64(turns * yieldAfter) {
		st := &stream{id: i}
		st.run.word.Store(queued | closed) // there is nothing to send
		s.push(st)
	}
	ctx, stop := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	workers.Go(func() { s.run(ctx) })
	n, queue := 0, &s.shards[0]
	for waiting := true; waiting; n++ {
		runtime.Gosched()
		queue.mu.Lock()
		waiting = queue.head < len(queue.queue)
		queue.mu.Unlock()
	}
	stop()
	workers.Wait()
	if n < turns/2 {
		t.Errorf("another goroutine ran %d times, want about %d", n, turns)
	}
}
