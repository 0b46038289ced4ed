package main

import (
	"cmp"
	"fmt"

	"xdsrelay/internal/admin/keystatus"
	"xdsrelay/internal/terminal"
)

// outcome is the result of a wait in JSON: the relay's last answer, if any, and the wait's own
// result.
type outcome struct {
	Result string `json:"result"`
	// Reason explains to the user why the version was not reached.
	Reason string `json:"reason,omitempty"`
	keystatus.Progress
	Expected int `json:"clients_expected"`
	Gone     int `json:"clients_gone"`
}

func (w *waiter) outcome(result string) outcome {
	out := outcome{Result: result, Progress: w.last, Expected: w.expected(), Gone: w.members.gone()}
	if !w.answered { // without an answer, the question
		out.Key, out.Type, out.Version = w.key, string(w.typ), w.version
	}
	switch result {
	case isReached:
	case isLost:
		out.Reason = fmt.Sprintf("%d of %d clients left during the wait and did not come back within %s", w.gone(), w.members.peak, w.settle)
	default:
		out.Reason = cmp.Or(w.obstacle(), w.text())
	}
	return out
}

// fail ends the wait with an error. JSON and YAML output has it as data too.
func (w *waiter) fail(err error) error {
	w.clear()
	if w.format == terminal.FormatText {
		return err
	}
	out := w.outcome(isFailed)
	out.Reason = err.Error()
	if e := terminal.PrintData(w.out, w.format, out); e != nil {
		return e
	}
	return err
}
