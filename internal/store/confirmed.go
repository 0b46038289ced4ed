package store

import (
	"container/heap"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// confirmedFile says of files when what they have was last known to be what the
// origin has, if that is not what they say themselves: one small file that is
// replaced now and then, so that the others need not be written while nothing
// changes. It names writings and not files: of a file that was replaced since it
// says nothing. Without it, each file's own time counts.
const confirmedFile = "confirmed"

const (
	confirmedSize = len(fileID{}) + timeSize
	maxConfirmed  = 4096 // in a record
	// leastConfirmed is how large the file is that speaks of one.
	leastConfirmed = int64(preambleSize + 8 + 3*frameSize + confirmedSize)
)

// readConfirmed brings the index up to date, in Open. Without the file, or where it
// cannot be read, files are as old as they say.
func (s *Store) readConfirmed() error {
	at, size, err := s.decodeConfirmedFile()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case isDamage(err):
		f := &file{name: confirmedFile, size: size}
		s.add(f)
		s.fault(f, nil, err)
		return nil
	case err != nil:
		s.o.Log.Warn("store: when files were confirmed last cannot be read: they count as older", "path", filepath.Join(s.o.Path, confirmedFile), "error", err)
	}
	s.journal = size
	for _, f := range s.index {
		if t, ok := at[f.id]; ok && f.state == whole {
			f.confirmed = t
		}
	}
	heap.Init(&s.ages)
	return nil
}

func (s *Store) decodeConfirmedFile() (map[fileID]time.Time, int64, error) {
	r, size, err := s.openFile(confirmedFile)
	if err != nil {
		return nil, 0, err
	}
	defer r.Close()
	at, err := decodeConfirmed(s.reading(r), size)
	return at, size, err
}

func decodeConfirmed(r io.Reader, size int64) (map[fileID]time.Time, error) {
	o := newOpener(r, size, bufferSize)
	if err := o.preamble(); err != nil {
		return nil, err
	}
	b, err := o.record(kindHeader, 8)
	if err != nil {
		return nil, err
	}
	if len(b) != 8 {
		return nil, damaged("it does not say how much is in it")
	}
	at := make(map[fileID]time.Time)
	for range binary.BigEndian.Uint64(b) {
		b, err := o.record(kindConfirmed, maxConfirmed*int64(confirmedSize))
		if err != nil {
			return nil, err
		}
		for ; len(b) >= confirmedSize; b = b[confirmedSize:] {
			t, ok := readTime(b[len(fileID{}):confirmedSize])
			if !ok {
				return nil, damaged("a time that is none")
			}
			at[fileID(b)] = t
		}
		if len(b) > 0 {
			return nil, damaged("a record of an odd length")
		}
	}
	if err := o.end(); err != nil {
		return nil, err
	}
	return at, nil
}

// confirmAll has all sources asked when what they have was confirmed.
func (s *Store) confirmAll(now time.Time) {
	s.mu.Lock()
	n := 0
	for _, it := range s.items {
		s.breathe(&n)
		if it.src == nil || it.dirty || it.again {
			continue
		}
		it.again = true
		s.agains++
		s.push(it, now)
	}
	s.mu.Unlock()
}

// confirmNow asks all sources, at the end.
func (s *Store) confirmNow(enough func() error) {
	s.mu.Lock()
	var all []*item
	n := 0
	for _, it := range s.items {
		s.breathe(&n)
		if it.src != nil && !it.dirty {
			if !it.again {
				it.again = true
				s.agains++
			}
			all = append(all, it)
		}
	}
	s.mu.Unlock()
	for _, it := range all {
		if enough() != nil {
			return
		}
		s.do(it, enough)
	}
}

// writeConfirmed writes when files were confirmed, if there is anything to say.
func (s *Store) writeConfirmed() {
	s.mu.Lock()
	if !s.stale {
		s.mu.Unlock()
		return
	}
	s.stale = false
	var records [][]byte
	seen := 0
	for _, f := range s.index {
		s.breathe(&seen)
		if f.state != whole {
			continue
		}
		if n := len(records); n == 0 || len(records[n-1]) == maxConfirmed*confirmedSize {
			records = append(records, nil)
		}
		last := &records[len(records)-1]
		*last = appendTime(append(*last, f.id[:]...), f.confirmed)
	}
	s.mu.Unlock()
	size := int64(preambleSize + 8 + 2*frameSize)
	for _, b := range records {
		size += int64(frameSize + len(b))
	}
	if s.o.MaxBytes > 0 && size > s.o.MaxBytes {
		return // others say of themselves how old they are
	}
	err := s.replace(confirmedFile, size, func(w io.Writer) error { return encodeConfirmed(w, size, records) })
	if err == nil {
		err = s.syncDir()
	}
	s.mu.Lock()
	if err == nil {
		s.journal = size
		if f := s.index[confirmedFile]; f != nil { // damaged, and it could not be set aside
			s.forget(f)
		}
	} else {
		s.stale = true
	}
	s.show()
	s.mu.Unlock()
	s.outage(err)
}

// dropConfirmed removes the file.
func (s *Store) dropConfirmed() error {
	path := filepath.Join(s.o.Path, confirmedFile)
	if err := s.hook("remove", path); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s.mu.Lock()
	s.journal, s.stale = 0, true
	s.mu.Unlock()
	return nil
}

func encodeConfirmed(w io.Writer, size int64, records [][]byte) error {
	s := newSealer(w, size)
	if err := s.preamble(); err != nil {
		return err
	}
	if err := s.record(kindHeader, binary.BigEndian.AppendUint64(nil, uint64(len(records)))); err != nil {
		return err
	}
	for _, b := range records {
		if err := s.record(kindConfirmed, b); err != nil {
			return err
		}
	}
	if err := s.record(kindEnd, nil); err != nil {
		return err
	}
	return s.w.Flush()
}
