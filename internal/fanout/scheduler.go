package fanout

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

// scheduler hands dirty streams to as many workers as cores. Streams are queued on shards, so that
// publishers and workers seldom wait for each other. A worker whose shard is empty takes from the
// others.
type scheduler struct {
	shards []shard
	idle   atomic.Int32
	tokens chan struct{} // one for each idle worker that should look again
}

type shard struct {
	mu    sync.Mutex
	queue []*stream // has each stream at most once
	head  int
	_     [64]byte // a cache line of its own
}

func newScheduler() *scheduler {
	n := runtime.GOMAXPROCS(0)
	return &scheduler{shards: make([]shard, n), tokens: make(chan struct{}, n)}
}

// Wake implements subscriber.Waker.
func (t *streamType) Wake() { t.st.wake(t.bit) }

// wake marks types dirty, and queues the stream if no worker has it.
func (st *stream) wake(bits uint64) {
	st.run.mark(bits)
	if st.run.tryQueue() {
		st.srv.sched.push(st)
	}
}

// completed is called when message n has left.
func (st *stream) completed(n uint64) {
	st.inFlight.Store(nil)
	if st.run.completed(n) {
		st.srv.sched.push(st)
	}
}

// push queues a stream. Its run state says queued already.
func (s *scheduler) push(st *stream) {
	sh := &s.shards[st.id%uint64(len(s.shards))]
	sh.mu.Lock()
	sh.queue = append(sh.queue, st)
	sh.mu.Unlock()
	if s.idle.Load() > 0 {
		select {
		case s.tokens <- struct{}{}:
		default:
		}
	}
}

func (sh *shard) pop() *stream {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.head == len(sh.queue) {
		return nil
	}
	st := sh.queue[sh.head]
	sh.queue[sh.head] = nil
	sh.head++
	switch {
	case sh.head == len(sh.queue):
		sh.queue, sh.head = sh.queue[:0], 0
	case sh.head > 1024 && sh.head > len(sh.queue)/2:
		n := copy(sh.queue, sh.queue[sh.head:])
		clear(sh.queue[n:])
		sh.queue, sh.head = sh.queue[:n], 0
	}
	return st
}

func (s *scheduler) take(own int) *stream {
	for i := range s.shards {
		if st := s.shards[(own+i)%len(s.shards)].pop(); st != nil {
			return st
		}
	}
	return nil
}

// run works until ctx ends; it returns when all workers have.
func (s *scheduler) run(ctx context.Context) {
	var workers sync.WaitGroup
	for i := range s.shards {
		workers.Go(func() { s.work(ctx, i) })
	}
	workers.Wait()
}

// yieldAfter is after how many streams a worker lets grpc's writers run. Otherwise each of thousands
// of connections would hold a write buffer with a small response at the same time.
const yieldAfter = 16

func (s *scheduler) work(ctx context.Context, own int) {
	for n := 1; ctx.Err() == nil; n++ {
		if n%yieldAfter == 0 {
			runtime.Gosched()
		}
		st := s.take(own)
		if st == nil {
			// It is idle before it looks again, so that a push in between is
			// either seen or leaves a token.
			s.idle.Add(1)
			if st = s.take(own); st == nil {
				select {
				case <-s.tokens:
				case <-ctx.Done():
				}
			}
			s.idle.Add(-1)
		}
		if st != nil {
			st.work()
		}
	}
}
