package filesource

import (
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/upstream/upstreamtest"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Files may be swapped while they are read. Then the relay does not apply a mix of old and new
// files. A resource that moves between files is not removed meanwhile.
func TestP80_SwappedWhileTheyAreRead(t *testing.T) {
	base := t.TempDir()
	in := func(name string) string { return filepath.Join(base, name) }
	put := func(dir string, files map[string]string) {
		must(t, os.Mkdir(in(dir), 0o755))
		for name, text := range files {
			must(t, os.WriteFile(filepath.Join(in(dir), name), []byte(text), 0o644))
		}
	}
	for what, moves := range map[string][2]map[string]string{
		"back": {
			{"1.yaml": clustersFile("1", "a=1"), "2.yaml": clustersFile("1", "b=1", "r=1")},
			{"1.yaml": clustersFile("2", "a=1", "r=1"), "2.yaml": clustersFile("2", "b=2")},
		},
		"to a new file": {
			{"2.yaml": clustersFile("1", "a=1"), "3.yaml": clustersFile("1", "b=1", "r=1")},
			{"1.yaml": clustersFile("1", "r=1"), "2.yaml": clustersFile("2", "a=1"), "3.yaml": clustersFile("2", "b=2")},
		},
	} {
		t.Run(what, func(t *testing.T) {
			put(what+" old", moves[0])
			put(what+" new", moves[1])
			must(t, os.Symlink(what+" old", in(what)))
			m, err := telemetry.New(telemetry.Options{})
			must(t, err)
			o, err := New(Options{Name: "files", Path: in(what), Log: slog.New(slog.DiscardHandler), Metrics: m, Origin: m.Origin("files")})
			must(t, err)
			decode, swapped := decoders[".yaml"], false
			defer func() { decoders[".yaml"] = decode }()
			decoders[".yaml"] = func(raw []byte) ([]*discoveryv3.DiscoveryResponse, error) {
				if !swapped { // the first file was read, the second one was not
					swapped = true
					must(t, os.Symlink(what+" new", in(".tmp")))
					must(t, os.Rename(in(".tmp"), in(what)))
				}
				return decode(raw)
			}
			o.scan()
			now, _ := o.load()
			if got := slices.Sorted(maps.Keys(now.ofType(cds).resources)); !slices.Equal(got, []string{"a", "b", "r"}) {
				t.Errorf("after a swap in between: %v", got)
			}
		})
	}
}

// A wildcard's resource may have lapsed, without a removal, before a directory begins to serve. If
// the directory lacks it too, it is removed. Otherwise clients that still hold it would never learn
// of the removal.
func TestP80_ExpiredBeforeTheDirectoryServes(t *testing.T) {
	b, began := snapshot.NewBuilder(xds.TypeOf(upstreamtest.Unknown)), time.Now()
	b.Apply(snapshot.Update{Type: upstreamtest.Unknown, Origin: "other", Wildcard: true, Received: began, Changed: []*xds.Resource{
		upstreamtest.Widget(t, "stays", "1"), upstreamtest.Widget(t, "expired", "1").RenewTTL(time.Second, began), upstreamtest.ResourceOf(t, upstreamtest.Unknown, upstreamtest.Resource{Name: "uncached", Uncached: true}),
	}})
	b.Apply(snapshot.Update{Type: upstreamtest.Unknown, Wildcard: true, Ended: true})
	b.Expire(began.Add(time.Minute))
	held, _ := b.Snapshot(nil, 1)
	now := &typeContents{version: "1", resources: map[string]*xds.Resource{"stays": upstreamtest.Widget(t, "stays", "1")}}
	u, any := (&sentState{contents: noContents}).update(all(upstreamtest.Unknown), nil, now, held, began)
	if !any || !slices.Equal(u.Removed, []string{"expired", "uncached"}) {
		t.Errorf("removed are %v", u.Removed)
	}
}
