package fanout

import "sync/atomic"

// runState says which worker has a stream and what there is to do for it. It has a dirty bit for
// each type, and one word {queued, running, in flight, closed, number of the send}. Every
// transition is one atomic step, so that publishers, workers, the transport's completion and the
// end of the stream need no lock.
//
// A stream whose frame another worker is building counts as in flight as well.
//
// A goroutine that sets a dirty bit tries to queue the stream afterwards. A worker that leaves
// looks at the dirty bits afterwards. So one of the two sees the other. A stream in flight is not
// queued: its completion queues it.
type runState struct {
	dirty atomic.Uint64
	word  atomic.Uint64
}

const (
	queued uint64 = 1 << iota
	running
	inFlight
	closed
	sendShift = 4 // the number of the send stands above the flags
)

// step is called before each atomic step; the model test interleaves there.
var step = func() {}

// mark sets dirty bits. The caller calls tryQueue next.
func (r *runState) mark(bits uint64) {
	step()
	r.dirty.Or(bits)
}

// unmark clears bits before the caller reads the State: what is published later sets them again. It
// returns the bits that were set.
func (r *runState) unmark(bits uint64) (were uint64) {
	step()
	return r.dirty.And(^bits) & bits
}

// tryQueue reports whether the caller has to put the stream into the run queue: it is dirty, and no
// worker has it or will look at it again.
func (r *runState) tryQueue() bool {
	for {
		step()
		w := r.word.Load()
		if w&(queued|running|inFlight|closed) != 0 {
			return false
		}
		step()
		if r.dirty.Load() == 0 {
			return false
		}
		step()
		if r.word.CompareAndSwap(w, w|queued) {
			return true
		}
	}
}

// enter makes the caller the one worker that has the stream, after it took it
// from the run queue. It reports false if the stream is closed.
func (r *runState) enter() bool {
	for {
		step()
		w := r.word.Load()
		next := w&^queued | running
		if w&closed != 0 {
			next = w &^ queued
		}
		step()
		if r.word.CompareAndSwap(w, next) {
			return w&closed == 0
		}
	}
}

// send notes that a message is about to be handed to the transport and returns its number. Only
// the worker that has the stream calls it, while no message is in flight.
func (r *runState) send() uint64 {
	for {
		step()
		w := r.word.Load()
		n := w>>sendShift + 1
		step()
		if r.word.CompareAndSwap(w, n<<sendShift|w&(1<<sendShift-1)|inFlight) {
			return n
		}
	}
}

// completed notes that message n has left, or never will. The transport's goroutine may call it
// before the worker's call into the transport has returned. It reports whether the caller has to
// queue the stream.
func (r *runState) completed(n uint64) bool {
	for {
		step()
		w := r.word.Load()
		if w&inFlight == 0 || w>>sendShift != n {
			return false
		}
		step()
		if r.word.CompareAndSwap(w, w&^inFlight) {
			return r.tryQueue()
		}
	}
}

// leave releases the stream. queue: the caller has to put it into the run queue. ended: the stream
// was closed meanwhile, and its end waits for this.
func (r *runState) leave() (queue, ended bool) {
	for {
		step()
		w := r.word.Load()
		step()
		if r.word.CompareAndSwap(w, w&^running) {
			if w&closed != 0 {
				return false, true
			}
			return r.tryQueue(), false
		}
	}
}

// close ends the stream for all workers. It reports whether one has it now:
// leave will then report ended.
func (r *runState) close() (busy bool) {
	for {
		step()
		w := r.word.Load()
		step()
		if r.word.CompareAndSwap(w, w|closed) {
			return w&running != 0
		}
	}
}

// sending reports whether a message is in flight.
func (r *runState) sending() bool { return r.word.Load()&inFlight != 0 }
