package fanout

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// alarms rings what it was set for, at a time: slots that hold a change back
// until ack_timeout (P19), and streams that are old. Whoever
// has an alarm has one at most, so they are bounded by who there is: that of a
// slot whose stream has ended stays until it is due, that of a stream is dropped.
type alarms[T ringer] struct {
	mu     sync.Mutex
	due    alarmHeap[T]
	sooner chan struct{} // one slot: the first alarm is another now
}

// ringer is what alarms are set for.
type ringer interface{ ring() }

// alarm is the ringer's part of alarms, under their lock.
type alarm[T ringer] struct {
	at    time.Time
	of    T
	place int // in the heap, from 1; 0: it is not set
}

func newAlarms[T ringer]() *alarms[T] { return &alarms[T]{sooner: make(chan struct{}, 1)} }

// set rings of, whose own alarm it is, at the time, and not at a later one for
// which it was set.
func (a *alarms[T]) set(at time.Time, own *alarm[T], of T) {
	a.mu.Lock()
	switch {
	case own.place == 0:
		own.at, own.of = at, of
		heap.Push(&a.due, own)
	case at.Before(own.at):
		own.at = at
		heap.Fix(&a.due, own.place-1)
	}
	first := a.due[0] == own
	a.mu.Unlock()
	if first {
		select {
		case a.sooner <- struct{}{}:
		default:
		}
	}
}

// drop takes an alarm back, if it is set.
func (a *alarms[T]) drop(own *alarm[T]) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if own.place != 0 {
		heap.Remove(&a.due, own.place-1)
	}
}

// run rings until ctx ends.
func (a *alarms[T]) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		for _, of := range a.take(time.Now()) {
			of.ring()
		}
		timer.Reset(a.next(time.Now()))
		select {
		case <-timer.C:
		case <-a.sooner:
		case <-ctx.Done():
			return
		}
	}
}

func (a *alarms[T]) take(now time.Time) (due []T) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.due) > 0 && !a.due[0].at.After(now) {
		due = append(due, heap.Pop(&a.due).(*alarm[T]).of)
	}
	return due
}

// next is how long until the first alarm.
func (a *alarms[T]) next(now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.due) == 0 {
		return time.Hour
	}
	return a.due[0].at.Sub(now)
}

type alarmHeap[T ringer] []*alarm[T]

func (h alarmHeap[T]) Len() int           { return len(h) }
func (h alarmHeap[T]) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h alarmHeap[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i+1, j+1
}
func (h *alarmHeap[T]) Push(x any) {
	a := x.(*alarm[T])
	*h = append(*h, a)
	a.place = len(*h)
}
func (h *alarmHeap[T]) Pop() any {
	old := *h
	x := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	x.place = 0
	return x
}
