package main

import (
	"strings"
	"testing"
	"time"
)

// A type without a key is not shown as one that waits for the origin.
func TestDiffOfATypeWithoutAKey(t *testing.T) {
	var out strings.Builder
	printUnacknowledged(&out, "web-0", []unacknowledged{{Type: "type.googleapis.com/envoy.config.route.v3.RouteConfiguration", State: "NOT SENT", NoKey: "unmapped_later_type"}}, time.Now())
	if got := out.String(); got != "web-0 RDS has no key and gets no response: reason unmapped_later_type\n" {
		t.Errorf("%q", got)
	}
}
