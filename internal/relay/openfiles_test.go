package relay

import (
	"testing"

	"xdsrelay/config"
)

// limits.connections is by default what the limit of open files leaves after a reserve, and at least
// half of that.
func TestAutoConnections(t *testing.T) {
	c := config.Default()
	c.Downstream.Limits.Keys, c.Upstream.StreamsPerConnection = 1001, 100
	for _, tc := range []struct {
		files, origins int
		want           config.Count
	}{
		{20_000, 0, 19_900}, {20_000, 1, 19_889}, {20_000, 2, 19_878}, {200, 2, 100}, {41, 1, 21}, {1, 1, 1}, {0, 1, 0},
	} {
		c.Upstream.Origins = make([]config.Origin, tc.origins)
		if got := autoConnections(&c, tc.files); got != tc.want {
			t.Errorf("%d files, %d origins: %d, want %d", tc.files, tc.origins, got, tc.want)
		}
	}
}
