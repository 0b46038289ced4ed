package wait

import (
	"cmp"
	"fmt"

	"xdsrelay/internal/admin/keystatus"
	"xdsrelay/internal/terminal"
)

// Outcome is the result of a wait in JSON: the relay's last answer, if any, and the wait's own
// result.
type Outcome struct {
	Result string `json:"result"`
	// Reason explains to the user why the version was not reached.
	Reason string `json:"reason,omitempty"`
	keystatus.Progress
	Expected int `json:"clients_expected"`
	Gone     int `json:"clients_gone"`
}

func (w *waiter) outcome(result string) Outcome {
	out := Outcome{Result: result, Progress: w.last, Expected: w.expected(), Gone: w.presence.gone()}
	if !w.answered { // without an answer, the question
		out.Key, out.Type, out.Version = w.Key, string(w.Type), w.Version
	}
	switch result {
	case isReached:
	case isLost:
		out.Reason = fmt.Sprintf("%d of %d clients left during the wait and did not come back within %s", w.gone(), w.presence.peak, w.Settle)
	default:
		out.Reason = cmp.Or(w.obstacle(), w.text())
	}
	return out
}

// fail ends the wait with an error. JSON and YAML output has it as data too.
func (w *waiter) fail(err error) error {
	w.clear()
	if w.Format == terminal.FormatText {
		return err
	}
	out := w.outcome(isFailed)
	out.Reason = err.Error()
	if e := terminal.PrintData(w.Out, w.Format, out); e != nil {
		return e
	}
	return err
}
