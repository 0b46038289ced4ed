package upstream

import (
	"fmt"
	"testing"

	"xdsrelay/internal/telemetry"
)

// Whether an attempt is a failure depends on what it brought, and on whether the origin responds to
// other streams.
func TestP54_P53_P68_OutcomeOfAnAttempt(t *testing.T) {
	const both = 2
	is := func(b int) []bool {
		if b == both {
			return []bool{false, true}
		}
		return []bool{b == 1}
	}
	n := 0
	for _, c := range []struct {
		what                                       string
		opened, responded, suspected, held, others int
		reason                                     telemetry.Reconnect
		failed                                     bool
	}{
		{"the origin cannot be reached", 0, 0, both, both, both, telemetry.Unreachable, true},
		{"a stream that had a response is lost", 1, 1, both, both, both, telemetry.Ended, false},
		{"the origin responds to no stream", 1, 0, both, both, 0, telemetry.NoResponse, true},
		{"it responds to other streams, but not to this one", 1, 0, 0, 1, 1, telemetry.NoResponse, true},
		{"it may have nothing to send", 1, 0, both, 0, 1, telemetry.NoResponse, false},
		{"a suspect may be the cause", 1, 0, 1, 1, 1, telemetry.NoResponse, false},
	} {
		for _, suspected := range is(c.suspected) {
			for _, held := range is(c.held) {
				for _, others := range is(c.others) {
					n++
					e := attemptEnd{opened: c.opened == 1, responded: c.responded == 1, suspected: suspected, held: held, others: others}
					t.Run(fmt.Sprintf("%s %+v", c.what, e), func(t *testing.T) {
						if e.reason() != c.reason || e.failed() != c.failed {
							t.Errorf("%s, failed %v; want %s, %v", e.reason(), e.failed(), c.reason, c.failed)
						}
					})
				}
			}
		}
	}
	if n != 8+8+4+1+2+1 {
		t.Errorf("%d cases: all combinations must be there once", n)
	}
}
