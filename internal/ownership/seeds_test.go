package ownership

import (
	"bytes"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// A seed has the types with their content and their ages by the clock of the relay that reads it. It
// has no Secrets.
func TestSeed(t *testing.T) {
	began := time.Now()
	made := func(typ xds.TypeURL, age time.Duration) *snapshot.Snapshot {
		wire, err := proto.Marshal(&anypb.Any{TypeUrl: string(typ)})
		if err != nil {
			t.Fatal(err)
		}
		r, err := xds.NewResource(xds.TypeOf(typ), "a", wire)
		if err != nil {
			t.Fatal(err)
		}
		b := snapshot.NewBuilder(xds.TypeOf(typ))
		b.Apply(snapshot.Update{Type: typ, Origin: "o", Wildcard: true, Changed: []*xds.Resource{r}, Received: began.Add(-age)})
		s, _ := b.Snapshot(nil, 1)
		return s
	}
	b, err := Seed(key, []*snapshot.Snapshot{made(xds.ClusterType, time.Minute), made(xds.SecretType, 0), made(xds.RouteType, time.Hour)}, began)
	if err != nil {
		t.Fatal(err)
	}
	later := began.Add(24 * time.Hour) // the other relay's clock
	all, err := readSeed(key, b, later)
	if err != nil || len(all) != 2 {
		t.Fatalf("%d types, %v", len(all), err)
	}
	for i, want := range []struct {
		typ xds.TypeURL
		age time.Duration
	}{{xds.ClusterType, time.Minute}, {xds.RouteType, time.Hour}} {
		s := all[i]
		if s.Type.URL != want.typ || later.Sub(s.Received) != want.age || !s.Answered || s.Resource("a") == nil {
			t.Errorf("%s of age %v: %+v", s.Type.URL, later.Sub(s.Received), want)
		}
	}
	if _, err := readSeed(xds.NewKey("other"), b, later); err == nil {
		t.Error("the seed of another key was accepted")
	}
	for cut := range len(b) {
		if got, err := readSeed(key, b[:cut], later); err == nil && cut > 0 && len(got) != 1 {
			t.Errorf("a seed that was cut at %d was accepted with %d types", cut, len(got))
		}
	}
	if _, err := readSeed(key, bytes.Repeat([]byte{0xff}, 100), later); err == nil {
		t.Error("noise was accepted")
	}
}
