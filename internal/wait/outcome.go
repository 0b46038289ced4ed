package wait

import (
	"cmp"
	"fmt"

	"xdsrelay/internal/admin/keystatus"
	"xdsrelay/internal/terminal"
)

// The results of a wait in JSON.
const (
	isReached    = "reached"
	isLate       = "timeout"
	isNacked     = "nacked"
	isSuperseded = "superseded"
	isLost       = "lost"
	isFailed     = "error"
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

func (w *waiter) reached() bool {
	return !w.stopping && w.last.Known && w.last.Clients >= w.Clients && w.gone() == 0 && 100*float64(w.last.Reached) >= w.Percent*float64(w.expected())
}

// possible reports whether enough clients have not NACKed the version.
func (w *waiter) possible() bool {
	p := &w.last
	return p.Nacking == 0 || 100*float64(p.Clients-p.Nacking) >= w.Percent*float64(p.Clients)
}

// expected is the number of clients that percentages refer to. It includes clients that left a
// moment ago: they may come back, or the version may have crashed them.
func (w *waiter) expected() int {
	return max(w.presence.lately(), w.last.Clients, w.Clients)
}

// gone is the number of clients that left for good, or 0 if --lost allows so many.
func (w *waiter) gone() int {
	n := w.presence.gone()
	if 100*float64(n) <= w.Lost*float64(w.presence.peak) {
		return 0
	}
	return n
}

// late ends a wait that ran out of time.
func (w *waiter) late() error {
	what := "not reached within " + w.Timeout.String()
	switch {
	case !w.answered && !w.stopping && w.away != nil:
		return w.fail(w.away)
	case w.last.SupersededBy != "" && !w.last.Known:
		return w.end(isSuperseded, what, ErrUnreachable)
	}
	return w.end(isLate, what, ErrLate)
}

// end writes the result and returns err.
func (w *waiter) end(result, what string, err error) error {
	if w.Format != terminal.FormatText {
		said := w.outcome(result)
		if e := terminal.PrintData(w.Out, w.Format, said); e != nil {
			return e
		}
		return err
	}
	colour := terminal.Green
	if err != nil {
		colour = terminal.Red
	}
	text := w.text()
	if obstacle := w.obstacle(); w.away != nil || w.stopping {
		text = obstacle
	}
	w.line(fmt.Sprintf("%s: %s", terminal.StyleOf(w.Out).Colour(colour, what), text))
	if w.bar {
		fmt.Fprintln(w.Out)
	}
	return err
}
