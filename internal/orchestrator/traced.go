package orchestrator

import (
	"time"

	"xdsrelay/internal/telemetry/tracing"
)

// traced are the traces of updates that are applied and not published yet. The
// group's goroutine owns them.
type traced []*tracing.Update

// maxTraced bounds them: with settle, what comes meanwhile is merged.
const maxTraced = 64

// applied takes a trace over, whose update was looked at from began on.
func (t *traced) applied(u *tracing.Update, began time.Time) {
	if u == nil {
		return
	}
	u.Applied(began)
	if len(*t) == maxTraced {
		u.End("merged")
		return
	}
	*t = append(*t, u)
}

// now is the time, if there is anything to be told with it.
func (t *traced) now() (at time.Time) {
	if len(*t) > 0 {
		at = time.Now()
	}
	return at
}

// published ends what waited for the State of this generation.
func (t *traced) published(began time.Time, generation uint64, woken int) {
	for _, u := range *t {
		u.Published(began, generation, woken)
	}
	*t = nil
}

// over ends what is not published any more.
func (t *traced) over() {
	for _, u := range *t {
		u.End("over")
	}
	*t = nil
}
