package rest

import (
	"testing"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// The cost of a document for the first poll that needs it and for each further one, for 10,000
// clusters.
func BenchmarkREST(b *testing.B) {
	t := new(testing.T)
	s, _ := newServer(t, nil)
	snap := snapshotOf(t, xds.ClusterType, true, names(10_000)...)
	sub := wants(true)
	b.Run("version", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			answerFor(snap, sub)
		}
	})
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			body, err := s.encode(snap, sub, "v", &telemetry.TypeMetrics{})
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(body)))
		}
	})
	b.Run("again", func(b *testing.B) {
		a := documentsOf(snap).document(snap, sub)
		b.ReportAllocs()
		for b.Loop() {
			documentsOf(snap).document(snap, sub)
			if _, err := s.encoded(b.Context(), snap, sub, a, &telemetry.TypeMetrics{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
