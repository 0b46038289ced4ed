package history

import (
	"fmt"
	"testing"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// The number of versions is bounded over all keys. Close frees the room of its type.
func TestVersionsAreBounded(t *testing.T) {
	h := New(func(int) {}, func(int) {})
	of := h.NewType(xds.TypeOf(cds))
	b := snapshot.NewBuilder(xds.TypeOf(cds))
	var held *snapshot.Snapshot
	step := func(n int) {
		for i := range n {
			b.Apply(snapshot.Update{Type: cds, Version: fmt.Sprint(b, i, n), Wildcard: true})
			now, names := b.Snapshot(held, 1)
			if now != held {
				of.Note(held, now, names)
				held = now
			}
		}
	}
	step(maxVersions + 5)
	equal(t, "of one type", fmt.Sprint(len(of.Versions()), h.versions.Load()), fmt.Sprint(maxVersions, maxVersions))
	h.versions.Add(allVersions)
	step(1)
	equal(t, "of one type, while there are many", len(of.Versions()), fewVersions)
	h.versions.Add(-allVersions)
	of.Close()
	equal(t, "after Close", h.versions.Load(), 0)
}
