package store

import (
	"fmt"
	"testing"

	"xdsrelay/internal/xds"
)

// What writing and reading cost, the disk's own time included: a thousand records
// of 10 KB, and one of 100 MB.
func BenchmarkWrite(b *testing.B) {
	for _, c := range []struct {
		name             string
		records, n, size int
	}{{"1000x10KB", 1000, 10, 1000}, {"1x100MB", 1, 10_000, 10_000}} {
		recs := make([]*Record, c.records)
		for i := range recs {
			recs[i] = clusters(b, fmt.Sprint(i), c.n, c.size)
		}
		var bytes int64
		for _, r := range recs {
			bytes += newHeader(r).size
		}
		b.Run(c.name, func(b *testing.B) {
			s := opened(b, b.TempDir())
			b.SetBytes(bytes)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				for _, rec := range recs {
					again := *rec
					again.Version = fmt.Sprint(i) // else it is not written
					it := &item{slot: slot{rec.Key, rec.Type}, file: slot{rec.Key, rec.Type}.name(), at: -1}
					if _, err := s.store(it, &again, true, func() error { return nil }); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
		b.Run(c.name+"/unchanged", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				for _, rec := range recs {
					_ = rec.sum()
				}
			}
		})
		b.Run(c.name+"/load", func(b *testing.B) {
			dir := b.TempDir()
			for _, rec := range recs {
				plant(b, dir, rec)
			}
			s := opened(b, dir)
			b.SetBytes(bytes)
			b.ReportAllocs()
			for b.Loop() {
				for _, rec := range recs {
					if got, err := s.Load(rec.Key, rec.Type); got == nil || err != nil {
						b.Fatal(got, err)
					}
				}
			}
		})
	}
}

// Telling the store of a change that is known already.
func BenchmarkTouch(b *testing.B) {
	s := opened(b, b.TempDir())
	src, key := new(source), xds.NewKey("one")
	b.ReportAllocs()
	for b.Loop() {
		s.Touch(key, xds.ClusterType, src)
	}
}
