package keystatus

import (
	"maps"
	"strings"
	"testing"
	"testing/synctest"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
)

// The owner of a key owns it whatever its source is. Another relay follows, unless it has chosen an
// origin.
func TestRoles(t *testing.T) {
	bubble(t, func(w *fixture) {
		for key, st := range map[string]upstream.Status{
			"my-a": {Origin: "origin", Connected: true}, "my-b": {Origin: "two", Relayed: true, Connected: true},
			"a": {Origin: "two", Relayed: true, Connected: true}, "b": {Origin: "two", Relayed: true}, "c": {},
			"d": {Origin: "origin"},
		} {
			w.join(key, cds, "*")
			synctest.Wait()
			w.feed(key).sink.Status(st)
		}
		synctest.Wait()
		if got := w.Roles(); len(got) > 0 {
			t.Errorf("without a cluster: %v", got)
		}
		w.owner = func(key xds.Key) (string, bool) {
			if strings.HasPrefix(key.String(), "my-") {
				return "me", true
			}
			return "other", false
		}
		if got := w.Roles(); !maps.Equal(got, map[telemetry.KeyRole]int{telemetry.KeyOwner: 2, telemetry.KeyFollower: 3, telemetry.KeyDirect: 1}) {
			t.Errorf("%v", got)
		}
		for key, want := range map[string]string{"my-b": "owner me two", "a": "follower other two", "d": "direct other origin"} {
			k, _ := w.Key(xds.NewKey(key))
			if got := k.Role + " " + k.Owner + " " + k.Upstream.Origin; got != want {
				t.Errorf("%s: %s, want %s", key, got, want)
			}
		}
		if got := w.Owner(xds.NewKey("not-used")); got != "other" {
			t.Error(got)
		}
		w.owner = func(xds.Key) (string, bool) { return "", false }
		if got := w.Roles(); got[telemetry.KeyDirect] != 6 {
			t.Errorf("no member owns keys: %v", got)
		}
	})
}
