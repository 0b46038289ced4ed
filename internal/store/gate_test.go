package store

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"xdsrelay/internal/xds"
)

// marked is what must not be on the disk.
const marked = "BEGIN-PRIVATE-MARK"

// onDisk looks into each file under dir, whatever it is called.
func onDisk(t *testing.T, dir, mark string) (in []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err == nil && bytes.Contains(b, []byte(mark)) {
			in = append(in, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// cluster is an entry of a record.
func cluster(t *testing.T, name, value string, extra ...byte) Entry {
	return Entry{resource(t, xds.ClusterType, name, "1", value, extra...), false}
}

// Secrets are not stored, by whatever URL their type goes: not as a record of
// theirs, and not as what stands in another.
func TestP6_SecretsAreNeverStored(t *testing.T) {
	dir := t.TempDir()
	r := running(t, dir)
	for _, typ := range []xds.TypeURL{xds.SecretType, "example.com/envoy.extensions.transport_sockets.tls.v3.Secret", "type.googleapis.com/envoy.api.v2.auth.Secret"} {
		src := new(source).set(&Record{
			Key: xds.NewKey("one"), Type: typ,
			Entries: []Entry{{resource(t, typ, "cert", "1", marked), false}},
		})
		r.Touch(xds.NewKey("one"), typ, src)
		r.put(t, clusters(t, "other", 1, 1)) // so that it was looked at
		if src.asked != 0 {
			t.Errorf("%s: it was asked for", typ)
		}
		r.Release(xds.NewKey("one"), typ, src)
		if got, err := r.Load(xds.NewKey("one"), typ); got != nil || err != nil || r.Has(xds.NewKey("one"), typ) {
			t.Errorf("%s: it is there: %v, %v", typ, got, err)
		}
	}
	// A fault of who says what is good.
	mixed := &Record{Key: xds.NewKey("two"), Type: xds.ClusterType, Entries: []Entry{
		cluster(t, "a", "kept"), {resource(t, xds.SecretType, "b", "1", marked), false}, cluster(t, "c", "kept"),
	}}
	r.put(t, mixed)
	got, err := r.Load(mixed.Key, mixed.Type)
	if err != nil || got == nil || len(got.Entries) != 2 {
		t.Errorf("of the mixed record is stored: %+v, %v", got, err)
	}
	r.stop()
	if in := onDisk(t, dir, marked); len(in) > 0 {
		t.Errorf("it is in %v", in)
	}
	if in := onDisk(t, dir, "kept"); len(in) != 1 {
		t.Errorf("what may be stored is in %v", in)
	}
}

// A file of Secrets, which none of ours can be, is not served.
func TestP6_SecretsAreNeverServedFromDisk(t *testing.T) {
	dir := t.TempDir()
	rec := &Record{Key: xds.NewKey("one"), Type: xds.SecretType, Entries: []Entry{{resource(t, xds.SecretType, "cert", "1", marked), false}}}
	plant(t, dir, rec)
	r := opened(t, dir)
	if got, err := r.Load(rec.Key, rec.Type); got != nil || err != nil || r.Has(rec.Key, rec.Type) {
		t.Errorf("it is served: %v, %v", got, err)
	}
	if in := onDisk(t, dir, marked); len(in) > 0 {
		t.Errorf("it stays in %v", in)
	}
}

// plant writes a file past the gate.
func plant(t testing.TB, dir string, rec *Record) string {
	t.Helper()
	var b bytes.Buffer
	if err := encode(&b, newHeader(rec), rec, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, slot{rec.Key, rec.Type}.name())
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// forge makes a file of which all sums are right, with these payloads for entries.
func forge(t testing.TB, rec *Record, payloads ...[]byte) []byte {
	t.Helper()
	h := newHeader(&Record{Key: rec.Key, Type: rec.Type, Node: rec.Node, Wildcard: rec.Wildcard, Confirmed: rec.Confirmed})
	h.entries = int64(len(payloads))
	for _, p := range payloads {
		h.size += int64(frameSize + len(p))
	}
	var b bytes.Buffer
	s := newSealer(&b, h.size)
	err := errors.Join(s.preamble(), s.record(kindHeader, h.append(nil)), s.record(kindNode, rec.Node))
	for _, p := range payloads {
		err = errors.Join(err, s.record(kindEntry, p))
	}
	if err = errors.Join(err, s.record(kindEnd, nil), s.w.Flush()); err != nil {
		t.Fatal(err)
	}
	if int64(b.Len()) != h.size {
		t.Fatalf("%d bytes, and the header says %d", b.Len(), h.size)
	}
	return b.Bytes()
}

// What is not to be cached is not stored; what stands beside it is, and an answer
// to the wildcard remains one.
func TestP63_DoNotCacheIsNeverStored(t *testing.T) {
	for _, part := range []struct {
		name string
		wild bool
	}{{"named", false}, {"wildcard", true}} {
		t.Run(part.name, func(t *testing.T) {
			dir := t.TempDir()
			r := running(t, dir)
			rec := &Record{Key: xds.NewKey("one"), Type: xds.ClusterType, Wildcard: part.wild, Entries: []Entry{
				cluster(t, "a", "kept"), cluster(t, "b", marked, uncached...), cluster(t, "c", "kept as well"), cluster(t, "d", marked, uncached...),
			}}
			for i := range rec.Entries {
				rec.Entries[i].Wild = part.wild
			}
			src := r.put(t, rec)
			want := *rec
			want.Entries = []Entry{rec.Entries[0], rec.Entries[2]}
			r.loads(t, &want)
			if len(rec.Entries) != 4 {
				t.Error("the source's record was changed")
			}
			// Nothing but that: nothing at all, or an empty answer to the wildcard.
			only := &Record{Key: rec.Key, Type: rec.Type, Wildcard: part.wild, Version: "2", Entries: rec.Entries[1:2]}
			r.Touch(rec.Key, rec.Type, src.set(only))
			r.settled(t)
			got, err := r.Load(rec.Key, rec.Type)
			if err != nil || (got != nil) != part.wild || got != nil && len(got.Entries) > 0 {
				t.Errorf("%+v, %v", got, err)
			}
			// Nor is it on the way to the disk, when its source has gone.
			r.Touch(rec.Key, rec.Type, src.set(rec))
			r.Release(rec.Key, rec.Type, src)
			r.loads(t, &want)
			r.stop()
			if in := onDisk(t, dir, marked); len(in) > 0 {
				t.Errorf("it is in %v", in)
			}
		})
	}
}

// A TTL is the origin's to renew: what has one would expire before it is served, or
// live for ever.
func TestP62_WhatHasATTLIsNotStored(t *testing.T) {
	dir := t.TempDir()
	r := running(t, dir)
	rec := &Record{Key: xds.NewKey("one"), Type: xds.ClusterType, Entries: []Entry{cluster(t, "a", "kept"), cluster(t, "b", marked, timed...)}}
	r.put(t, rec)
	want := *rec
	want.Entries = rec.Entries[:1]
	r.loads(t, &want)
	r.stop()
	if in := onDisk(t, dir, marked); len(in) > 0 {
		t.Errorf("it is in %v", in)
	}
}

// What a file should not hold it does not serve, though all its sums are right.
func TestP63_DoNotCacheIsNeverServedFromDisk(t *testing.T) {
	for name, extra := range map[string][]byte{"do_not_cache": uncached, "ttl": timed} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			rec := clusters(t, "one", 0, 0)
			wire := append(message(3, []byte("a")), message(2, anyOf(rec.Type, marked))...)
			b := forge(t, rec, append([]byte{0}, message(1, append(wire, extra...))...))
			if err := os.WriteFile(filepath.Join(dir, slot{rec.Key, rec.Type}.name()), b, 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := opened(t, dir).Load(rec.Key, rec.Type)
			if got != nil || !isDamage(err) || !strings.Contains(err.Error(), xds.ErrNotStorable.Error()) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

// What is left out is counted by why.
func TestWhatIsLeftOutIsCounted(t *testing.T) {
	r := running(t, t.TempDir())
	r.put(t, &Record{Key: xds.NewKey("one"), Type: xds.ClusterType, Entries: []Entry{
		cluster(t, "a", "x", uncached...), cluster(t, "b", "x", timed...), cluster(t, "c", "x", timed...),
		{resource(t, xds.SecretType, "d", "1", "x"), false}, cluster(t, "e", "x"),
	}})
	r.counts(t, map[string]float64{
		`store_left_out_total{reason="do_not_cache"}`: 1,
		`store_left_out_total{reason="ttl"}`:          2,
		`store_left_out_total{reason="secret"}`:       1,
		`store_writes_total{result="written"}`:        1,
		`store_files`:                                 1,
	})
}
