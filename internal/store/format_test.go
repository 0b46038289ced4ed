package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"xdsrelay/internal/xds"
)

// written is the file of a record.
func written(t testing.TB, rec *Record) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := encode(&b, newHeader(rec), rec, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// small is a record with a bit of everything, in few bytes.
func small(t testing.TB) *Record {
	rec := clusters(t, "one", 0, 0)
	rec.Entries = []Entry{
		{resource(t, rec.Type, "a", "1", "x", alias("b")...), true},
		{resource(t, rec.Type, "a", "2", "y"), false},
		{resource(t, rec.Type, "xdstp://a/b/c?z&a", "", "z"), false},
	}
	return rec
}

// refused holds b against a reader: it must not be read as anything.
func refused(t *testing.T, what string, b []byte) {
	t.Helper()
	rec, _, err := decode(bytes.NewReader(b), int64(len(b)))
	if rec != nil || !isDamage(err) {
		t.Errorf("%s: %+v, %v", what, rec, err)
	}
}

// Any byte flipped, in any of three ways, and any cut: nothing is read then.
func TestAnyByteFlippedOrCutOffIsFound(t *testing.T) {
	rec := small(t)
	file := written(t, rec)
	if got, _, err := decode(bytes.NewReader(file), int64(len(file))); err != nil || equal(rec, got) != "" {
		t.Fatalf("%v, %s", err, equal(rec, got))
	}
	for i := range file {
		for _, flip := range []byte{0x01, 0x80, 0xff} {
			b := slices.Clone(file)
			b[i] ^= flip
			refused(t, "a flipped byte", b)
		}
		refused(t, "cut", file[:i])
		refused(t, "cut at the beginning", file[i+1:])
		refused(t, "a byte left out", slices.Concat(file[:i], file[i+1:]))
		refused(t, "a byte twice", slices.Concat(file[:i+1], file[i:]))
		// A reader that is told another size than there is.
		if rec, _, err := decode(bytes.NewReader(file[:i]), int64(len(file))); rec != nil || err == nil {
			t.Errorf("cut while it is read: %+v, %v", rec, err)
		}
	}
	refused(t, "more behind it", append(slices.Clone(file), 0))
	refused(t, "twice", slices.Concat(file, file))
	if rec, _, err := decode(bytes.NewReader(append(slices.Clone(file), 0)), int64(len(file))); rec != nil || err == nil {
		t.Errorf("grown while it is read: %+v, %v", rec, err)
	}
}

// frames are the records of a file, the preamble first.
func frames(t *testing.T, b []byte) (out [][]byte) {
	t.Helper()
	out = append(out, b[:preambleSize])
	for b = b[preambleSize:]; len(b) > 0; {
		n := frameSize + int(binary.BigEndian.Uint32(b[1:]))
		out = append(out, b[:n])
		b = b[n:]
	}
	return out
}

// Records that are whole, each by itself, and not where they were: left out, twice,
// in another order, of another file or of what the file had before.
func TestRecordsThatWereMovedAreFound(t *testing.T) {
	rec := small(t)
	file := written(t, rec)
	parts := frames(t, file)
	join := func(parts [][]byte) []byte { return bytes.Join(parts, nil) }
	for i := range parts {
		refused(t, "left out", join(slices.Delete(slices.Clone(parts), i, i+1)))
		refused(t, "twice", join(slices.Insert(slices.Clone(parts), i, parts[i])))
		for j := range i {
			swapped := slices.Clone(parts)
			swapped[i], swapped[j] = swapped[j], swapped[i]
			refused(t, "in another order", join(swapped))
		}
	}
	// The same record again, with other times; and one of another key and length.
	before := *rec
	before.Entries = slices.Clone(rec.Entries)
	before.Entries[2] = Entry{resource(t, rec.Type, "xdstp://a/b/c?z&a", "", "w"), false}
	other := *rec
	other.Key = xds.NewKey("two")
	for _, o := range []*Record{rec, &before, &other} {
		with := frames(t, written(t, o))
		for i := 2; i < len(parts); i++ { // preambles are alike
			refused(t, "its beginning and the end of another", join(append(slices.Clone(parts[:i]), with[i:]...)))
			one := slices.Clone(parts)
			one[i] = with[i]
			if !bytes.Equal(one[i], parts[i]) {
				refused(t, "a record of another", join(one))
			}
		}
	}
}

// A length takes no memory before it is held against the file.
func TestLengthsTakeNoMemory(t *testing.T) {
	file := written(t, small(t))
	at := preambleSize
	for range 4 {
		b := slices.Clone(file)
		binary.BigEndian.PutUint32(b[at+1:], 0xfffffff0)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		refused(t, "a huge record", b)
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 4<<20 {
			t.Errorf("%d bytes were allocated for a file of %d", got, len(file))
		}
		at += frameSize + int(binary.BigEndian.Uint32(file[at+1:]))
	}
}

// What no writer of ours writes is refused, though all its sums are right.
func TestWellSealedNonsenseIsRefused(t *testing.T) {
	rec := clusters(t, "one", 0, 0)
	a := append([]byte{0}, resource(t, rec.Type, "a", "1", "x").AppendStored(nil)...)
	b := append([]byte{0}, resource(t, rec.Type, "b", "1", "x").AppendStored(nil)...)
	wild := append([]byte{1}, a[1:]...)
	other := append([]byte{0}, resource(t, xds.EndpointType, "c", "1", "x").AppendStored(nil)...)
	for what, payloads := range map[string][][]byte{
		"an empty entry":        {{}},
		"an entry without more": {{0}},
		"an unknown part":       {append([]byte{2}, a[1:]...)},
		"out of order":          {b, a},
		"the same twice":        {a, a},
		"the name's first":      {a, wild},
		"another type":          {a, other},
	} {
		refused(t, what, forge(t, rec, payloads...))
	}
	good := forge(t, rec, wild, a, b)
	if got, _, err := decode(bytes.NewReader(good), int64(len(good))); err != nil || len(got.Entries) != 3 {
		t.Errorf("what is good is refused: %v", err)
	}
}

// A header that is sealed and wrong.
func TestWellSealedHeadersAreChecked(t *testing.T) {
	rec := clusters(t, "one", 0, 0)
	h := newHeader(rec)
	good := h.append(nil)
	if back, err := decodeHeader(good); err != nil || back.key != h.key || back.sum != h.sum || !back.received.Equal(h.received) {
		t.Fatalf("%+v, %v", back, err)
	}
	for i := range good {
		for _, b := range [][]byte{good[:i], good[i+1:], slices.Concat(good, good[i:])} {
			if back, err := decodeHeader(b); err == nil && i > 0 && len(b) > len(good) {
				t.Errorf("a header with more behind it is read: %+v", back)
			} else if back == nil && !isDamage(err) {
				t.Errorf("%v", err)
			}
		}
	}
	huge := *h
	huge.entries = 1 << 40
	if b := sealed(t, huge.append(nil)); !isDamage(readHeader(b)) {
		t.Error("a header with more entries than fit is taken")
	}
}

func sealed(t *testing.T, header []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	s := newSealer(&b, 1000)
	if err := errors.Join(s.preamble(), s.record(kindHeader, header), s.record(kindNode, nil), s.record(kindEnd, nil), s.w.Flush()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func readHeader(b []byte) error {
	_, err := newOpener(bytes.NewReader(b), int64(len(b)), 16).header()
	return err
}

// A file of another version of the program is neither served nor taken for damaged:
// whoever goes back to that version finds it. What is new takes its place.
func TestAnotherFormatIsLeftWhereItIs(t *testing.T) {
	for _, version := range []uint32{0, formatVersion + 1, 1 << 31} {
		dir := t.TempDir()
		rec := small(t)
		path := plant(t, dir, rec)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		copy(b, otherFormat(version))
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		r := running(t, dir)
		got, err := r.Load(rec.Key, rec.Type)
		if got != nil || err != nil || r.Has(rec.Key, rec.Type) {
			t.Errorf("version %d is served: %v, %v", version, got, err)
		}
		if st := r.Status(); st.Foreign != 1 || st.Files != 1 || st.Damaged != 0 {
			t.Errorf("status is %+v", st)
		}
		if !strings.Contains(r.log.String(), path) || !strings.Contains(r.log.String(), "format") {
			t.Errorf("it is not told: %s", r.log)
		}
		r.counts(t, map[string]float64{`store_loads_total{result="other_format"}`: 1, "store_damaged_total": 0})
		// Nothing good is no reason to destroy it.
		src := new(source)
		r.Touch(rec.Key, rec.Type, src)
		r.settled(t)
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, b) {
			t.Errorf("it was changed: %v", err)
		}
		r.Touch(rec.Key, rec.Type, src.set(rec))
		r.settled(t)
		r.loads(t, rec)
		r.stop()
	}
}

// otherFormat is the preamble of a version.
func otherFormat(version uint32) []byte {
	b := binary.BigEndian.AppendUint32([]byte(magic), version)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

// Changes to a file that is read: it gives what was written, or nothing.
func FuzzLoad(f *testing.F) {
	rec := small(f)
	file := written(f, rec)
	f.Add([]byte{})
	f.Add([]byte{0, 0, 9, 0, 1})
	f.Add([]byte{1, 0, 60, 1, 0, 2, 0, 80, 0, 10})
	f.Add([]byte{3, 0, 80, 1, 0, 1, 0, 60, 0, 200})
	f.Fuzz(func(t *testing.T, edits []byte) {
		b := edited(file, edits)
		got, _, err := decode(bytes.NewReader(b), int64(len(b)))
		switch {
		case bytes.Equal(b, file):
			if diff := equal(rec, got); diff != "" || err != nil {
				t.Fatalf("what was written is not read: %s, %v", diff, err)
			}
		case err == nil || got != nil: // it would have had to find a SHA-256
			t.Fatalf("something else is read: %+v, %v", got, err)
		}
	})
}

// edited is b after these edits, each of five bytes: what is done, and two places.
func edited(b, edits []byte) []byte {
	b = slices.Clone(b)
	for ; len(edits) >= 5 && len(b) > 0 && len(b) < 1<<16; edits = edits[5:] {
		i := int(binary.BigEndian.Uint16(edits[1:])) % len(b)
		j := int(binary.BigEndian.Uint16(edits[3:])) % len(b)
		switch edits[0] % 5 {
		case 0:
			b[i] ^= byte(j)
		case 1:
			b[i], b[j] = b[j], b[i]
		case 2:
			b = slices.Delete(b, min(i, j), max(i, j))
		case 3:
			b = slices.Insert(b, i, b[min(i, j):max(i, j)]...)
		case 4:
			b = b[:i]
		}
	}
	return b
}

// What is sealed by right sums is read by decoders that must bear anything.
func FuzzSealed(f *testing.F) {
	rec := small(f)
	a := append([]byte{1}, rec.Entries[0].Resource.AppendStored(nil)...)
	f.Add(newHeader(rec).append(nil), a, []byte{})
	f.Fuzz(func(t *testing.T, header, one, two []byte) {
		if h, err := decodeHeader(header); err == nil {
			if back, err := decodeHeader(h.append(nil)); err != nil || back.key != h.key || back.typ != h.typ || back.entries != h.entries {
				t.Fatalf("%+v, and then %+v, %v", h, back, err)
			}
		}
		b := forge(t, rec, one, two)
		got, _, err := decode(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		for _, e := range got.Entries {
			if !e.Resource.Storable() || e.Resource.TypeURL() != rec.Type {
				t.Fatalf("%+v", e)
			}
		}
		if !slices.IsSortedFunc(got.Entries, order) {
			t.Fatal("out of order")
		}
	})
}

// The file of another slot under this one's name is not served.
func TestRenamedFilesAreFound(t *testing.T) {
	dir := t.TempDir()
	rec, other := clusters(t, "one", 1, 10), clusters(t, "two", 1, 10)
	if err := os.Rename(plant(t, dir, rec), filepath.Join(dir, slot{other.Key, other.Type}.name())); err != nil {
		t.Fatal(err)
	}
	r := opened(t, dir)
	for _, o := range []*Record{rec, other} {
		if got, _ := r.Load(o.Key, o.Type); got != nil {
			t.Errorf("%s: %+v", o.Key, got)
		}
	}
	if st := r.Status(); st.Damaged != 1 || st.SetAside != 1 || st.Files != 0 {
		t.Errorf("status is %+v", st)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	// While it runs, past the index.
	path := plant(t, dir, other)
	r = opened(t, dir)
	if err := os.WriteFile(path, written(t, rec), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := r.Load(other.Key, other.Type); got != nil || !isDamage(err) {
		t.Errorf("%+v, %v", got, err)
	}
}
