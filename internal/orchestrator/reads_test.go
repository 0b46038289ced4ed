package orchestrator

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"xdsrelay/internal/store"
	"xdsrelay/internal/xds"
)

// hungDisk has something of all endpoints, and does not come to read it until it is let.
type hungDisk struct {
	noStore
	let   chan struct{}
	rec   *store.Record
	once  bool         // it has rec for one reading
	reads atomic.Int64 // begun
	last  atomic.Int64 // now
}

func (d *hungDisk) Has(_ xds.Key, typ xds.TypeURL) bool { return typ == eds }

func (d *hungDisk) Load(xds.Key, xds.TypeURL) (*store.Record, error) {
	n := d.reads.Add(1)
	d.last.Add(1)
	defer d.last.Add(-1)
	<-d.let
	if d.once && n > 1 {
		return nil, nil
	}
	return d.rec, nil
}

func (d *hungDisk) Seed(key xds.Key, typ xds.TypeURL) (*store.Record, error) { return d.Load(key, typ) }

// onHungDisk is f with a disk that hangs; it is let in the end, if f has not.
func onHungDisk(t *testing.T, f func(w *world, d *hungDisk)) {
	t.Helper()
	d := &hungDisk{let: make(chan struct{})}
	bubbleWith(t, func(t *testing.T, o *Options) func() {
		d.let = make(chan struct{})
		o.Store = d
		return func() {}
	}, func(w *world) {
		d.rec = &store.Record{Key: xds.NewKey("web"), Type: eds, Origin: "origin", Entries: []store.Entry{{Resource: resource(w.t, eds, "x", "1")}}}
		f(w, d)
		select {
		case <-d.let:
		default:
			close(d.let)
		}
	})
}

// A disk that hangs keeps clients waiting for a while; then they are refused as if there
// were nothing on it, and what comes later is served.
func TestP53_ADiskThatHangs(t *testing.T) {
	onHungDisk(t, func(w *world, d *hungDisk) {
		a := w.join("web", eds).want("x")
		f := w.feed("web")
		f.failed()
		time.Sleep(maxLoading - time.Second)
		synctest.Wait()
		if a.refusal() != nil {
			t.Error("refused though the disk may be slow")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if a.refusal() == nil {
			t.Error("kept waiting")
		}
		if _, err := w.try("web", eds); err == nil {
			t.Error("a newcomer is let in")
		}
		f.reached() // and away again, which is no reason to read it once more
		time.Sleep(2 * time.Second)
		f.failed()
		time.Sleep(10 * time.Minute)
		if _, err := w.try("web", eds); err == nil {
			t.Error("a newcomer is let in")
		}
		equal(t, "readings", d.reads.Load(), 1)
		close(d.let)
		synctest.Wait()
		late := w.join("web", eds).want("x")
		synctest.Wait()
		equal(t, "x", late.sees(subscription("x"), "x"), "1")
		equal(t, "refused", late.refusal() != nil, false)
	})
}

// What the disk comes to say once the origin has spoken is of before, and not served in
// another outage.
func TestP53_WhatIsReadTooLateIsOfBefore(t *testing.T) {
	onHungDisk(t, func(w *world, d *hungDisk) {
		w.join("web", eds).want("y") // which the record has not
		f := w.feed("web")
		d.once = true
		f.failed()
		f.reached()
		f.update(t, eds, false, "y=1")
		f.failed()
		c := w.join("web", eds).want("x", "y")
		close(d.let)
		synctest.Wait()
		if w.State(c, "x") {
			t.Error("what was read in the outage before is served")
		}
		equal(t, "readings", d.reads.Load(), 2)
	})
}

// Of a disk that hangs a few readings do, however many keys there are; the others are
// bounded as well.
func TestP53_ADiskThatHangsForManyKeys(t *testing.T) {
	onHungDisk(t, func(w *world, d *hungDisk) {
		var all []*client
		for i := range 3 * maxLoads {
			key := fmt.Sprint("k", i)
			all = append(all, w.join(key, eds).want("x"))
			w.feed(key).failed()
		}
		time.Sleep(maxLoading + time.Second)
		synctest.Wait()
		for i, c := range all {
			if c.refusal() == nil {
				t.Errorf("the client of key %d is kept waiting", i)
			}
		}
		equal(t, "readings", d.reads.Load(), maxLoads)
	})
}

// A key goes, and the relay ends, though the disk hangs; and a key that is back does not
// have it read once more.
func TestP53_ADiskThatHangsKeepsNothingFromItsEnd(t *testing.T) {
	onHungDisk(t, func(w *world, d *hungDisk) {
		for range 3 {
			c := w.join("web", eds).want("x")
			w.feed("web").failed()
			g := c.of().group
			c.Leave()
			g.cancel()
			synctest.Wait()
			select {
			case <-g.over:
			default:
				t.Fatal("the key is not over")
			}
			w.reg.drop(g)
		}
		equal(t, "readings", d.reads.Load(), 1)
		w.join("db", eds).want("x")
		w.feed("db").failed()
		began := time.Now()
		w.stop()
		if d := time.Since(began); d > lastReads {
			t.Errorf("it took %v to end", d)
		}
		equal(t, "readings that are let go", d.last.Load(), 2)
	})
}

// Who writes down what is good is not kept by a disk that hangs, and does not forget what
// is there.
func TestP53_ADiskThatHangsKeepsNobodyFromWriting(t *testing.T) {
	onHungDisk(t, func(w *world, d *hungDisk) {
		c := w.join("web", eds).want("y")
		f := w.feed("web")
		f.reached()
		f.update(t, eds, false, "y=1")
		c.takes("y")
		k := c.of().group.views[0].keeper
		for i := range 3 {
			began := time.Now()
			if r, known := k.Good(); r != nil || known {
				t.Errorf("it is known what is good: %v", r)
			}
			if took := time.Since(began); took > maxSeeding || i > 0 && took > 0 {
				t.Errorf("it took %v", took)
			}
		}
		equal(t, "readings", d.reads.Load(), 1)
		close(d.let)
		synctest.Wait()
		r, known := k.Good()
		if !known || r == nil || len(r.Entries) != 2 {
			t.Errorf("good is %+v, %v", r, known)
		}
	})
}
