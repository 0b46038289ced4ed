package fanout

import (
	"context"
	"runtime"
	"sync"
	"testing"
)

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
