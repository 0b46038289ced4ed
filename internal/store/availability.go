package store

import (
	"errors"
	"os"
	"time"

	"xdsrelay/internal/telemetry"
)

// disk runs an operation, which calls step after each progress. If there is no progress for 5 s,
// disk returns ErrHangs and the operation goes on in the background.
func (s *Store) disk(op, path string, do func(step func()) error) error {
	timer := time.NewTimer(hangsAfter)
	defer timer.Stop()
	done := make(chan error, 1)
	var left, over bool // under mu
	go func() {
		var err error
		if s.o.fault != nil {
			err = s.o.fault(op, path)
		}
		if err == nil {
			err = do(func() { timer.Reset(hangsAfter) })
		}
		s.mu.Lock()
		if over = true; left {
			s.hung--
		}
		s.mu.Unlock()
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-timer.C:
	}
	s.mu.Lock()
	if left = !over; left {
		s.hung++
	}
	s.mu.Unlock()
	if !left {
		return <-done
	}
	return ErrHangs
}

func (s *Store) turnOff(err error) {
	s.mu.Lock()
	first := s.off == nil
	s.off = err
	s.clearQueue() // Run puts everything again once the store is on
	s.stats.Failed++
	s.stats.LastError, s.stats.LastErrorAt = err.Error(), time.Now()
	s.mu.Unlock()
	s.o.Metrics.Off.Set(1)
	if first {
		s.o.Log.Error("store: switched off; the relay neither writes nor serves stored resources", "path", s.o.Path, "error", err, "retry_in", retryEvery)
	}
	s.notifyRun()
}

// open opens the directory and switches the store on.
func (s *Store) open() error {
	s.mu.Lock()
	old := s.dir
	hung := s.hung
	s.mu.Unlock()
	if hung > 0 {
		return ErrHangs // an earlier operation hangs
	}
	err := s.disk("open", s.o.Path, func(func()) error {
		if old != nil {
			_ = old.lock.Close() // otherwise its lock would keep this process out
		}
		select {
		case late := <-s.opened:
			_ = late.lock.Close() // an earlier attempt that hung has ended
		default:
		}
		d, err := openDir(s.o.Path, s.o.Log)
		if err == nil {
			s.opened <- d
		}
		return err
	})
	if err != nil {
		return err
	}
	d := <-s.opened
	s.mu.Lock()
	was := s.off
	s.dir, s.off = d, nil
	s.showFiles()
	s.mu.Unlock()
	s.o.Metrics.Off.Set(0)
	if was != nil {
		s.o.Log.Info("store: switched on again", "path", s.o.Path)
	}
	return nil
}

// Close unlocks the directory. Run does so itself.
func (s *Store) Close() error {
	s.mu.Lock()
	d := s.dir
	hung := s.hung
	s.dir, s.closed = nil, true
	s.mu.Unlock()
	if d == nil || hung > 0 { // a hanging operation may still write: keep the lock until the process ends
		return nil
	}
	return s.disk("close", s.o.Path, func(func()) error {
		if err := d.lock.Close(); !errors.Is(err, os.ErrClosed) { // a retry that failed has closed it
			return err
		}
		return nil
	})
}

// failed notes that something could not be written, and switches the store off.
func (s *Store) failed(err error) {
	s.o.Metrics.Wrote(telemetry.WriteFailed)
	s.turnOff(err)
}
