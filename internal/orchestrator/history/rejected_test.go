package history

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
	"xdsrelay/internal/xdstest"
)

// of makes a cluster with this many bytes of content.
func of(t testing.TB, name string, bytes int) *xds.Resource {
	t.Helper()
	r, err := xds.NewResource(xds.TypeOf(cds), name, xdstest.NamedAny(string(cds), name, strings.Repeat("x", bytes)))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRejectedIsBounded(t *testing.T) {
	small, secret := of(t, "a", 10), of(t, "a", 11)
	large := of(t, "a", maxRejectedBytes-rejectedNameCost*3-200) // fits with two names, and not with 40
	secret.Uncacheable = true
	many := make([]snapshot.Difference, MaxRejectedNames+3)
	for i := range many {
		many[i] = snapshot.Difference{Name: fmt.Sprint(i), Offered: small}
	}
	for _, c := range []struct {
		what  string
		all   []snapshot.Difference
		more  int
		known bool
		want  string // of each: has>offered, "?" for one that is gone
	}{
		{"none", nil, 0, true, " +0"},
		{"unknown", nil, 0, false, " +0 unknown"},
		{"changed, new and removed", []snapshot.Difference{{Has: small, Offered: small}, {Offered: small}, {Has: small}}, 2, true, "r>r ->r r>- +2"},
		{"one of 2 MiB and another", []snapshot.Difference{{Has: large}, {Offered: large}, {Offered: small}}, 0, true, "r>- ->? ->r +0"},
		{"names for which there is no room", append([]snapshot.Difference{{Offered: large}}, many[:40]...), 0, true, "->? " + strings.TrimSpace(strings.Repeat("->r ", 40)) + " +0"},
		{"two that are too large together", []snapshot.Difference{{Has: large, Offered: large}}, 0, true, "?>? +0"},
		{"not cacheable", []snapshot.Difference{{Has: secret, Offered: small}, {Offered: secret}}, 0, true, "?>? ->? +0"},
		{"gone before", []snapshot.Difference{{HasGone: true, Offered: small}}, 0, true, "?>r +0"},
		{"too many", many, 1, true, strings.Repeat("->r ", MaxRejectedNames) + "+4"},
	} {
		r := NewRejected(c.all, c.more, c.known)
		side := func(r *xds.Resource, gone bool) string {
			switch {
			case gone && r != nil:
				return "kept and gone"
			case gone:
				return "?"
			case r == nil:
				return "-"
			}
			return "r"
		}
		var out []string
		for _, d := range r.Differences {
			out = append(out, side(d.Has, d.HasGone)+">"+side(d.Offered, d.OfferedGone))
		}
		got := strings.Join(out, " ") + fmt.Sprint(" +", r.More)
		if r.Unknown {
			got += " unknown"
		}
		equal(t, c.what, got, c.want)
		if r.bytes > maxRejectedBytes {
			t.Errorf("%s: %d bytes", c.what, r.bytes)
		}
	}
}

// A key keeps the resources of its last 16 NACKs; all keys together keep a number of bytes. The
// rows stay without their resources. A row that comes again without them gets them again.
func TestRejectedOfKeysIsBounded(t *testing.T) {
	h, _ := bounded(allNackBytes)
	h.nacks.rejected.max = 40 << 10
	asked := 0
	resources := func(bytes int) func() *Rejected {
		return func() *Rejected {
			asked++
			return NewRejected([]snapshot.Difference{{Name: "a", Offered: of(t, "a", bytes)}}, 0, true)
		}
	}
	web, db := h.NewNacks(xds.NewKey("web")), h.NewNacks(xds.NewKey("db"))
	nack := func(k *Nacks, version, bytes int) {
		k.Note(cds, subscriber.Nack{Version: fmt.Sprint(version), Node: "n"}, time.Now(), resources(bytes))
	}
	with := func(k *Nacks) (rows, kept int) {
		_, all := k.All()
		for _, n := range all {
			if n.Rejected != nil {
				kept++
			}
		}
		return len(all), kept
	}
	for i := range 20 {
		nack(web, i, 100)
		nack(web, i, 100) // known already
	}
	rows, kept := with(web)
	equal(t, "of a key", fmt.Sprint(rows, kept, asked, h.nacks.rejected.order.Len()), "20 16 20 16")
	if _, all := web.All(); all[0].Rejected == nil || all[16].Rejected != nil {
		t.Error("not the newest rows have resources")
	}
	nack(web, 0, 100)
	if _, all := web.All(); all[0].Version != "0" || all[0].Rejected == nil {
		t.Error("a row that came again has no resources")
	}
	nack(db, 0, 38<<10)
	_, kept = with(web)
	equal(t, "after a large one", fmt.Sprint(kept < 16, kept > 0, h.nacks.rejected.bytes <= h.nacks.rejected.max), "true true true")
	nack(db, 1, 39<<10)
	_, web2 := with(web)
	_, db2 := with(db)
	equal(t, "after two large ones", fmt.Sprint(web2, db2), "0 1")

	// Rows that a bound drops take their resources along, and so does the end of a key.
	h.nacks.rows.max = 1
	nack(web, 30, 100)
	equal(t, "rows", fmt.Sprint(h.nacks.rows.order.Len(), h.nacks.rejected.order.Len()), "1 1")
	web.Close()
	db.Close()
	nack(web, 31, 100)
	equal(t, "over", fmt.Sprint(h.nacks.rejected.bytes, h.nacks.rejected.order.Len()), "0 0")
	k := h.NewNacks(xds.NewKey("k"))
	h.nacks.rows.max = allNackBytes
	for i := range maxNacks + 20 {
		nack(k, i, 10)
	}
	equal(t, "after many rows", h.nacks.rejected.order.Len(), maxRejected)
	k.Note(cds, subscriber.Nack{Version: "s", Node: "n"}, time.Now(), none)
	if _, all := k.All(); all[0].Rejected != nil {
		t.Error("a Secret is kept")
	}
}
