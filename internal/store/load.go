package store

import (
	"errors"
	"io/fs"
	"time"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// Has reports whether there is a record, by the index: it may turn out to be too
// old, or damaged.
func (s *Store) Has(key xds.Key, typ xds.TypeURL) bool {
	at := slot{key, typ}
	name := at.name()
	s.mu.Lock()
	defer s.mu.Unlock()
	if rec, ok := s.items[at].newest(); ok {
		return rec != nil
	}
	if s.opening != nil {
		return !xds.TypeOf(typ).Secret // nobody knows
	}
	f := s.index[name]
	return f != nil && (f.state == whole || f.state == unread)
}

// TooOld reports whether there is a record, by the index, that is not served for its age.
func (s *Store) TooOld(key xds.Key, typ xds.TypeURL) bool {
	at := slot{key, typ}
	name := at.name()
	s.mu.Lock()
	s.followClock()
	rec, newer := s.items[at].newest()
	var confirmed time.Time
	f := s.index[name]
	switch {
	case rec != nil:
		confirmed = rec.Confirmed
	case !newer && f != nil && f.state == whole:
		confirmed = f.confirmed
	}
	s.mu.Unlock()
	return !confirmed.IsZero() && s.tooOld(confirmed)
}

// Load returns the last known good of a key and type; nil without an error if there
// is none that may be served: none at all, one that is too old, or one of another
// format. With an error it is not known what there is (it cannot be read now) or it
// is damaged; that has been reported. It reads the disk, and may take a while.
func (s *Store) Load(key xds.Key, typ xds.TypeURL) (*Record, error) {
	rec, result, err := s.load(slot{key, typ}, false)
	if rec != nil && s.tooOld(rec.Confirmed) {
		rec, result = nil, telemetry.TooOld
	}
	s.o.Metrics.Loaded(result)
	return rec, err
}

// Seed is Load for who is about to write it down anew, with what is known since: also
// of what is too old, which it may be by a clock that is wrong. It is not served.
func (s *Store) Seed(key xds.Key, typ xds.TypeURL) (*Record, error) {
	rec, _, err := s.load(slot{key, typ}, true)
	return rec, err
}

func (s *Store) load(at slot, old bool) (*Record, telemetry.Load, error) {
	if xds.TypeOf(at.typ).Secret {
		return nil, telemetry.NoneStored, nil
	}
	if err := s.awaitOpen(); err != nil {
		return nil, telemetry.LoadFailed, err
	}
	name := at.name()
	s.mu.Lock()
	s.followClock()
	rec, newer := s.items[at].newest()
	f := s.index[name]
	var was file
	if f != nil {
		was = *f
	}
	s.mu.Unlock()
	switch {
	case rec != nil:
		return rec, telemetry.Served, nil
	case newer, f == nil, was.state == broken:
		return nil, telemetry.NoneStored, nil
	case was.state == foreign:
		return nil, telemetry.OtherFormat, nil
	case !old && was.state == whole && s.tooOld(was.confirmed):
		return nil, telemetry.TooOld, nil
	}
	rec, h, err := s.readWhole(at, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, telemetry.NoneStored, nil
	case isDamage(err):
		s.fault(f, &at, err)
		return nil, telemetry.LoadDamaged, err
	case errors.Is(err, errFormat):
		return nil, telemetry.OtherFormat, nil
	case err != nil:
		s.fault(f, &at, err)
		return nil, telemetry.LoadFailed, err
	}
	if h.id == was.id {
		rec.Confirmed = was.confirmed
	}
	return rec, telemetry.Served, nil
}

func (s *Store) readWhole(at slot, name string) (*Record, *header, error) {
	defer s.watchReading()()
	r, size, err := s.openFile(name)
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	rec, h, err := decode(s.reading(r), size)
	if err == nil && (h.key != at.key || h.typ != at.typ) {
		return nil, nil, damaged("it is of key %s and type %s", h.key, h.typ)
	}
	return rec, h, err
}

// tooOld reports whether what was confirmed then is not to be served. What is from
// the future is not too old: the clock has been wrong, then or now.
func (s *Store) tooOld(confirmed time.Time) bool {
	age := s.o.Now().Sub(confirmed)
	if age < -time.Minute {
		s.mu.Lock()
		told := s.ahead
		s.ahead = true
		s.mu.Unlock()
		if !told {
			s.o.Log.Warn("store: what was stored is from the future: the clock is wrong, or was", "confirmed", confirmed, "ahead", -age)
		}
	}
	return s.o.MaxAge > 0 && age > s.o.MaxAge
}

// Expires is when a record gets too old to be served, by max_age and the wall
// clock as it is now, told as a time of the monotonic clock: a timer may be set to
// it, and a wall clock that jumps later does not move it. It may be past. What is
// from the future lasts for max_age from now, which is a guess: the clock is wrong,
// or was, and may be right later. Zero: it never gets too old.
func (s *Store) Expires(r *Record) (at time.Time, guess bool) {
	if s.o.MaxAge == 0 {
		return time.Time{}, false
	}
	age := s.o.Now().Sub(r.Confirmed)
	return time.Now().Add(s.o.MaxAge - max(age, 0)), age < 0 // else a clock that was wrong has it last for ever
}
