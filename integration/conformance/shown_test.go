package conformance

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"xdsrelay/internal/xdstest"
)

// shows waits until the key has a problem with these texts, in /server_info and in relay keys. relay
// status prints three problems of a kind.
func (c *trial) shows(timeout time.Duration, texts ...string) {
	c.Helper()
	err := xdstest.Poll(timeout, 100*time.Millisecond, func() error {
		info := c.relay.get(c, "/server_info?format=yaml")
		keys, _ := xdstest.Command(c, "keys", "--admin", c.relay.Admin).CombinedOutput()
		if !hasLine(info, append(texts, "key "+c.key+": ")...) || !hasLine(string(keys), append(texts, c.key)...) {
			return errorf("no line with %q:\n%s\n%s", texts, info, keys)
		}
		return nil
	})
	if err != nil {
		c.Fatal(err)
	}
}

func hasLine(text string, parts ...string) bool {
next:
	for line := range strings.Lines(text) {
		for _, p := range parts {
			if !strings.Contains(line, p) {
				continue next
			}
		}
		return true
	}
	return false
}

// A name with which the origin ends each stream keeps nothing from the key's clients. It is a problem
// of the key, with the origin's words, until no client wants it.
func TestP68_RejectedName(t *testing.T) {
	each(t, patient, onADS, func(c *trial) {
		c.site.rejects = "bad"
		c.site.put(c, rds, "a=1")
		one, two := c.client("one"), c.client("two")
		two.sub(rds, "a")
		two.until(rds, "a=1")
		one.sub(rds, "bad")
		c.shows(xdstest.Patience, "the origin ends each stream with RDS bad: ", "unknown name bad, Bearer [redacted]")
		c.site.put(c, rds, "a=2")
		two.until(rds, "a=2")
		one.unsub(rds, "bad")
		xdstest.Eventually(c, "the end of the problem", func() error {
			if body := c.relay.get(c, "/keys/"+c.key); strings.Contains(body, `"suspended"`) {
				return errorf("%s", body)
			}
			return nil
		})
	})
}

var countsClients = regexp.MustCompile(`(?m)^xdsrelay_downstream_waiting_types{type="EDS"} [1-9]`)

// A name that the origin leaves unanswered while it answers others is a problem of its key after 30 s,
// and has a metric.
func TestP57_PendingNameIsShown(t *testing.T) {
	each(t, patient, func(p place) bool { return p.ads && p.up != p.down }, func(c *trial) {
		c.site.silent = true
		c.site.put(c, eds, "a=1")
		cl := c.client("one")
		cl.sub(eds, "a", "pending")
		cl.take(eds, "a=1")
		if body := c.relay.get(c, "/server_info"); strings.Contains(body, "key "+c.key+":") {
			c.Errorf("a problem already: %s", body)
		}
		c.shows(time.Minute, "the origin has not answered EDS pending; 1 client waits")
		if body := c.relay.get(c, "/metrics"); !countsClients.MatchString(body) {
			c.Error("the metric counts no client")
		}
		c.site.put(c, eds, "pending=1")
		cl.until(eds, "pending=1")
		if body := c.relay.get(c, "/keys/"+c.key); strings.Contains(body, `"unanswered"`) {
			c.Errorf("a problem still: %s", body)
		}
	})
}
