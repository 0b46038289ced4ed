package store

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"xdsrelay/internal/telemetry"
)

// A relay starts though the disk hangs. What is on it is as what is being read then:
// nobody knows of it, who asks waits for as long as he likes to (Load), and what is good
// meanwhile is written once the directory is open.

// opening is a directory that is not open yet.
type opening struct {
	result chan *Store   // an open one; room for one
	failed chan error    // room for one
	over   chan struct{} // closed when it is open, or is not to be any more
	gone   bool          // over is closed, since it is not. The store's mu protects it
	end    func()        // of the watch
}

// errNotOpen: the store is at its end, and was never open.
var errNotOpen = errors.New("the directory could not be opened")

// Open takes the directory for this process and reads the beginnings of its
// files. If the disk hangs it returns all the same, after half a minute, and Run opens
// the directory when it does no more. It starts nothing else; Close gives the directory
// back, if Run is never called.
func Open(o Options) (*Store, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	s := empty(o)
	hangs := make(chan struct{})
	s.begin(func() { close(hangs) })
	select {
	case is := <-s.opening.result:
		s.opening.end()
		return is, nil
	case err := <-s.opening.failed:
		s.opening.end()
		return nil, err
	case <-hangs:
		return s, nil
	}
}

// empty is a store of which nothing is known.
func empty(o Options) *Store {
	s := &Store{o: o, wake: make(chan struct{}, 1), index: make(map[string]*file), items: make(map[slot]*item), unwritten: list.New()}
	s.asked.L = &s.mu
	s.stats.Path = o.Path
	return s
}

// begin has the directory be opened by another goroutine. What it comes to when nobody
// wants it any more is closed. hangs is called if that takes too long.
func (s *Store) begin(hangs func()) {
	if s.opening == nil {
		s.opening = &opening{result: make(chan *Store, 1), failed: make(chan error, 1), over: make(chan struct{})}
	}
	at := s.opening
	at.end = s.watched("opening", func() { s.o.Metrics.Wrote(telemetry.WriteFailed); hangs() })
	go func() {
		is, err := open(s.o)
		if err != nil {
			at.failed <- fmt.Errorf("store %s: %w", s.o.Path, err)
			return
		}
		s.mu.Lock()
		gone := at.gone
		if !gone {
			at.result <- is
		}
		s.mu.Unlock()
		if gone {
			_ = is.Close() // nothing was written
		}
	}()
}

// awaitOpen waits until the directory is open.
func (s *Store) awaitOpen() error {
	s.mu.Lock()
	at := s.opening
	s.mu.Unlock()
	if at == nil {
		return nil
	}
	<-at.over
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opening != nil {
		return errNotOpen
	}
	return nil
}

// forgo has nobody wait for the directory any more. What was opened meanwhile is to be
// closed by end, without mu: a disk may hang over that as well. mu is held.
func (s *Store) forgo() (end func()) {
	at := s.opening
	if at == nil || at.gone {
		return func() {}
	}
	at.gone = true
	close(at.over)
	select {
	case is := <-at.result:
		return func() { _ = is.Close() } // nothing was written
	default:
		return func() {}
	}
}

// openLate opens the directory, however long that takes; false: ctx ended first.
func (s *Store) openLate(ctx context.Context) bool {
	at := s.opening // nobody else changes it
	for at != nil {
		select {
		case is := <-at.result:
			at.end()
			s.mu.Lock()
			s.lock, is.lock = is.lock, nil
			s.adopt(is)
			s.clock, s.opening = is.clock, nil
			if !at.gone {
				close(at.over)
			}
			s.mu.Unlock()
			s.outage(nil)
			return true
		case err := <-at.failed:
			at.end()
			s.rest(ctx, s.outage(err), nil)
			if ctx.Err() == nil {
				s.begin(func() {})
			}
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// adopt has what was read of a directory take the place of what was known. mu is held.
func (s *Store) adopt(is *Store) {
	s.index, s.ages, s.bytes = is.index, is.ages, is.bytes
	s.aside, s.spare, s.journal, s.wrong = is.aside, is.spare, is.journal, is.wrong
	s.stats.Damaged += is.stats.Damaged
	if is.stats.LastError != "" {
		s.stats.LastError, s.stats.LastErrorAt = is.stats.LastError, is.stats.LastErrorAt
	}
	s.show()
}

func open(o Options) (*Store, error) {
	s := empty(o)
	if err := s.hook("opendir", o.Path); err != nil {
		return nil, err
	}
	if is, err := os.Stat(o.Path); err == nil && !is.IsDir() {
		return nil, fmt.Errorf("no directory")
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := os.MkdirAll(o.Path, 0o700); err != nil {
		return nil, err
	}
	if err := usable(o.Path); err != nil {
		return nil, err
	}
	var err error
	if s.lock, err = lockDir(o.Path); err != nil {
		return nil, err
	}
	if err := s.readAll(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if may, mode := openToOthers(o.Path); may != "" {
		o.Log.Warn("store: others may "+may+" the directory", "path", o.Path, "mode", mode.String(), "files", "0600", "should_be", "0700")
	}
	return s, nil
}

// readAll reads what is in the directory. What may fail comes before what tells of anything
// that is there: it may be tried again and again.
func (s *Store) readAll() error {
	for _, read := range []func() error{s.readAside, s.readIndex, s.readConfirmed} {
		if err := read(); err != nil {
			return err
		}
	}
	s.setAside()
	s.mu.Lock()
	s.beginClock()
	s.show()
	s.mu.Unlock()
	s.tellTooOld()
	return nil
}

// Close gives the directory back. Run does so itself.
func (s *Store) Close() error {
	s.mu.Lock()
	lock := s.lock
	s.lock, s.over, s.ended = nil, true, true
	end := s.forgo()
	s.mu.Unlock()
	end()
	if lock == nil {
		return nil
	}
	return errors.Join(s.hook("closedir", s.o.Path), lock.Close())
}
