package fanout

import (
	"testing"
	"time"
)

// What came to nothing is over at once, or soon and without a stream; not what had
// to wait, and not what was idle.
func TestWhatCameToNothing(t *testing.T) {
	for _, tc := range []struct {
		lived         time.Duration
		used, delayed bool
		want          bool
	}{
		{brief / 2, false, false, true},
		{brief / 2, true, false, true},
		{2 * brief, true, false, false},
		{handshakeTimeout, false, false, true},
		{idleConnection, false, false, false},
		{brief / 2, false, true, false},
		{handshakeTimeout, false, true, false},
	} {
		now := time.Now()
		c := &conn{opened: now.Add(-tc.lived)}
		c.used.Store(tc.used)
		c.delayed.Store(tc.delayed)
		if got := c.nothing(now); got != tc.want {
			t.Errorf("%+v: %v", tc, got)
		}
	}
	if strikeWait > 500*time.Millisecond {
		t.Error("the wait takes most of the second that Envoy has for connecting")
	}
}

func TestNeighbours(t *testing.T) {
	for address, want := range map[string]string{
		"10.0.0.1:5":              "10.0.0.1",
		"[2001:db8:1:2:3::4]:5":   "2001:db8:1:2::/64",
		"[2001:db8:1:2:ffff::]:5": "2001:db8:1:2::/64",
		"[fe80::1%eth0]:5":        "fe80::/64",
		"[::ffff:10.0.0.1]:5":     "::ffff:10.0.0.1",
		"@":                       "@",
	} {
		if got := neighbours(address); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}
