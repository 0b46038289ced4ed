package main

import (
	"cmp"
	"fmt"

	"xdsrelay/internal/admin/keystatus"
)

// outcome is what came of a wait, as JSON has it: the relay's last answer, if there
// was one, and what the wait made of it.
type outcome struct {
	Result string `json:"result"`
	// Reason is why it was not reached, for people.
	Reason string `json:"reason,omitempty"`
	keystatus.Progress
	Expected int `json:"clients_expected"`
	Gone     int `json:"clients_gone"`
}

func (w *waiter) outcome(result string) outcome {
	out := outcome{Result: result, Progress: w.last, Expected: w.expected(), Gone: w.members.gone()}
	if !w.answered { // it is known what was asked for
		out.Key, out.Type, out.Version = w.key, string(w.typ), w.version
	}
	switch result {
	case isReached:
	case isLost:
		out.Reason = fmt.Sprintf("%d of %d clients left since the wait began, and did not come back in %s", w.gone(), w.members.peak, w.settle)
	default:
		out.Reason = cmp.Or(w.inTheWay(), w.text())
	}
	return out
}

// fail is the end by an error: whoever reads data has it as data too.
func (w *waiter) fail(err error) error {
	w.clear()
	if w.format == formatText {
		return err
	}
	out := w.outcome(isFailed)
	out.Reason = err.Error()
	if e := printData(w.out, w.format, out); e != nil {
		return e
	}
	return err
}
