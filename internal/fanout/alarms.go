package fanout

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// alarms wakes slots that hold a change back until ack_timeout (P19). A slot has one
// alarm at most. That of a slot whose stream has ended stays until it is due.
type alarms struct {
	mu     sync.Mutex
	due    alarmHeap
	sooner chan struct{} // one slot: the first alarm is another now
}

// alarm is the slot's part of alarms, under their lock.
type alarm struct {
	at    time.Time
	of    *slot
	place int // in the heap, from 1; 0: it is not set
}

func newAlarms() *alarms { return &alarms{sooner: make(chan struct{}, 1)} }

// set rings of, whose own alarm it is, at the time, and not at a later one for
// which it was set.
func (a *alarms) set(at time.Time, own *alarm, of *slot) {
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

// run rings until ctx ends.
func (a *alarms) run(ctx context.Context) {
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

func (a *alarms) take(now time.Time) (due []*slot) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.due) > 0 && !a.due[0].at.After(now) {
		due = append(due, heap.Pop(&a.due).(*alarm).of)
	}
	return due
}

// next is how long until the first alarm.
func (a *alarms) next(now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.due) == 0 {
		return time.Hour
	}
	return a.due[0].at.Sub(now)
}

type alarmHeap []*alarm

func (h alarmHeap) Len() int           { return len(h) }
func (h alarmHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h alarmHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i+1, j+1
}
func (h *alarmHeap) Push(x any) {
	a := x.(*alarm)
	*h = append(*h, a)
	a.place = len(*h)
}
func (h *alarmHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	x.place = 0
	return x
}
