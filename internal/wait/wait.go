package wait

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"xdsrelay/internal/admin/keystatus"
	"xdsrelay/internal/adminclient"
	"xdsrelay/internal/spelling"
	"xdsrelay/internal/terminal"
	"xdsrelay/internal/xds"
)

// Options say what to wait for.
type Options struct {
	Key, Version string
	Type         xds.TypeURL
	Percent      float64 // of the clients, which must have the version
	Clients      int     // the least number of clients
	Newer        bool    // a newer version counts too
	Timeout      time.Duration
	Every        time.Duration // between two requests
	Settle       time.Duration // how long clients that left are expected back
	Lost         float64       // percent of them that may leave for good

	Relay      *adminclient.Client
	AllMembers bool // members of the relay's cluster
	// IgnoreDead is that of adminclient.AskAll.
	IgnoreDead time.Duration

	Out, Errs io.Writer
	Format    string // of out: text, JSON or YAML
}

// The output has the reason for these errors.
var (
	ErrLate        = errors.New("not reached in time")
	ErrUnreachable = errors.New("cannot be reached")
)

// For waits until the version is reached. It prints the progress and the result.
func For(ctx context.Context, o Options) error {
	w := &waiter{Options: o, marks: make(map[string]string)}
	w.bar = o.Format == terminal.FormatText && terminal.Overwrites(o.Out)
	w.width = func() int { return terminal.Width(o.Out) }
	return w.wait(ctx)
}

// waiter waits for a version. It is not safe for concurrent use.
type waiter struct {
	Options
	bar   bool       // progress is one line that is overwritten
	width func() int // of that line

	marks             map[string]string  // the last mark of each relay; "": the one that is asked alone
	last              keystatus.Progress // the sum of all relays
	answered          bool               // last is an answer of a relay that was not stopping
	stopping          bool               // the relay is stopping
	away              error              // the error of the last request; nil: it has an answer
	unauthorizedSince time.Time          // since when the relay rejects the token; zero: it accepts it
	unreachable       int                // successive answers by which the version cannot be reached
	presence          presence           // how many clients were there
	note              string             // the relay's remark about the key
	said              string             // the last line that was written
	saidAt            time.Time
	noted             string // the last obstacle that was written
}

// Settle is how long clients that left are expected back, and how long a rejected token may take to
// be renewed. Envoy waits for up to half of it before it reconnects.
const Settle = time.Minute

// linesEvery is the shortest time between two lines that differ only in numbers.
const linesEvery = 2 * time.Second

func (w *waiter) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.Timeout)
	defer cancel()
	tick := time.NewTicker(w.Every)
	defer tick.Stop()
	for {
		p, err := w.ask(ctx)
		var said adminclient.StatusError
		switch {
		case err == nil:
			w.note = p.Note
			w.record(p.Progress, time.Now())
		case errors.As(err, &said) && said.Status < 500 && !w.renews(said.Status, time.Now()): // it would answer the same again
			return w.fail(err)
		case ctx.Err() == nil:
			w.away = err
		}
		switch {
		case err == nil && w.reached():
			return w.end(isReached, "reached", nil)
		case err == nil && w.gone() > 0:
			w.clear()
			fmt.Fprintf(w.Errs, "relay: %d of %d clients left during the wait and did not come back within %s; --lost allows %v %%\n", w.gone(), w.presence.peak, w.Settle, w.Lost)
			return w.end(isLost, "too many clients left", ErrUnreachable)
		case w.unreachable > 1:
			return w.end(isNacked, "cannot be reached: too many clients reject the version", ErrUnreachable)
		}
		w.show(time.Now())
		select {
		case <-tick.C:
		case <-ctx.Done():
			return w.late()
		}
	}
}

// ask asks for the progress.
func (w *waiter) ask(ctx context.Context) (progress, error) {
	if w.AllMembers {
		return w.askAllMembers(ctx)
	}
	p, err := w.askOne(ctx, w.Relay, w.marks[""])
	if err == nil {
		w.marks[""] = p.Mark
	}
	return p, err
}

// askOne asks one relay, whose last mark is given.
func (w *waiter) askOne(ctx context.Context, relay *adminclient.Client, mark string) (p progress, err error) {
	q := url.Values{"type": {string(w.Type)}, "version": {w.Version}}
	if mark != "" {
		q.Set("mark", mark)
	}
	if w.Newer {
		q.Set("or_newer", "true")
	}
	err = relay.Get(ctx, "/progress/"+url.PathEscape(cmp.Or(w.last.Key, w.Key)), q, &p) // last.Key, so that all answers are about one key
	return p, err
}

// progress is an answer of /progress.
type progress struct {
	keystatus.Progress
	Note string `json:"note"`
}

// renews reports whether the token may be accepted again soon: the relay accepted it before, and
// its file is being renewed, here or at the relay.
func (w *waiter) renews(status int, now time.Time) bool {
	if status != http.StatusUnauthorized || !w.answered && !w.stopping {
		return false
	}
	if w.unauthorizedSince.IsZero() {
		w.unauthorizedSince = now
	}
	_ = w.Relay.ReadToken() // a file that is just being written may have no token
	return now.Sub(w.unauthorizedSince) < Settle
}

// record adds an answer. It ignores the numbers of a stopping relay, because they say nothing
// about the clients that left it.
func (w *waiter) record(p keystatus.Progress, now time.Time) {
	again := w.away != nil || w.stopping // clients may have left unseen
	w.away, w.unauthorizedSince, w.stopping = nil, time.Time{}, p.Draining
	if p.Draining {
		w.unreachable = 0
		return
	}
	restarted := w.answered && !p.Started.Equal(w.last.Started)
	w.presence.record(&p, again || restarted, restarted, w.Settle, now)
	w.last, w.answered = p, true
	if w.possible() {
		w.unreachable = 0
	} else {
		w.unreachable++
	}
}

// text describes the progress.
func (w *waiter) text() string {
	p := &w.last
	by := terminal.ShortVersion(terminal.Visible(p.SupersededBy))
	var b strings.Builder
	switch {
	case !w.answered:
		return "the relay has not answered yet"
	case !p.InUse:
		return terminal.Visible(cmp.Or(w.note, fmt.Sprintf("key %s is not in use", w.Key)))
	case !p.Known && p.SupersededBy != "":
		return fmt.Sprintf("superseded by %s before the wait began, and not seen since; %s", by, spelling.Counted(p.Clients, "client"))
	case !p.Known:
		newest := "the relay has no version"
		if p.Newest != "" {
			newest = "the newest is " + terminal.ShortVersion(terminal.Visible(cmp.Or(p.NewestOrigin, p.Newest)))
		}
		return fmt.Sprintf("the version has not arrived yet: %s; %s", newest, spelling.Counted(p.Clients, "client"))
	}
	fmt.Fprintf(&b, "%d of %s (%.1f %%)", p.Reached, spelling.Counted(p.Clients, "client"), p.Percent)
	if p.SupersededBy != "" {
		fmt.Fprintf(&b, ", superseded by %s, which also counts", by)
	}
	if n := w.presence.lately() - p.Clients; n > 0 {
		fmt.Fprintf(&b, ", %d more left recently", n)
	}
	if p.Pending > 0 {
		fmt.Fprintf(&b, ", %d pending", p.Pending)
		if l := p.Laggard; l != nil {
			fmt.Fprintf(&b, " (%s has been %s for %s)", terminal.Visible(l.Node), l.State, terminal.Age(time.Since(l.Since)))
		}
	}
	if p.Nacking > 0 {
		fmt.Fprintf(&b, ", %d rejected it", p.Nacking)
		if l := p.NackingClient; l != nil {
			fmt.Fprintf(&b, " (%s)", terminal.Visible(l.Node))
		}
	}
	if p.Clients < w.Clients {
		fmt.Fprintf(&b, ", but --clients requires %d", w.Clients)
	}
	return b.String()
}

// obstacle describes the obstacle to any progress; empty: there is none.
func (w *waiter) obstacle() string {
	p := &w.last
	switch {
	case !w.unauthorizedSince.IsZero():
		return "the relay rejects the token; trying again: " + terminal.FirstLine(w.away)
	case w.away != nil && w.AllMembers:
		return "not all members answer; trying again: " + terminal.FirstLine(w.away)
	case w.away != nil:
		return "the relay does not answer; trying again: " + terminal.FirstLine(w.away)
	case w.stopping:
		return "the relay is stopping; waiting for it to come back"
	case w.answered && !p.InUse:
		return terminal.Visible(cmp.Or(w.note, fmt.Sprintf("key %s is not in use", w.Key))) + "; waiting for a client with this key"
	case w.answered && p.SupersededBy != "" && !p.Known:
		// Without the newer version, which may change often: each text is printed once.
		return fmt.Sprintf("version %s was superseded before the wait began; waiting until it arrives again; --or-newer accepts a newer version", terminal.Visible(w.Version))
	case w.answered && !p.Known && w.note != "":
		return "the version has not arrived: " + terminal.Visible(w.note)
	}
	return ""
}

// show writes the progress: on a terminal each time, otherwise when the text changed and, for
// numbers, at most once in linesEvery. It writes an obstacle to standard error, once.
func (w *waiter) show(now time.Time) {
	obstacle := w.obstacle()
	if obstacle != w.noted {
		w.noted = obstacle
		if obstacle != "" {
			w.clear()
			fmt.Fprintln(w.Errs, "relay:", obstacle)
		}
	}
	if w.Format != terminal.FormatText {
		return
	}
	text := w.text()
	switch {
	case w.bar && w.last.Known && obstacle == "":
		w.line(terminal.CutTo(drawBar(100*float64(w.last.Reached)/float64(max(w.expected(), 1)))+" "+text, w.width()))
	case w.bar:
		w.line(terminal.CutTo(cmp.Or(obstacle, text), w.width()))
	case obstacle != "", text == w.said, w.last.Known && w.saidAt.After(now.Add(-linesEvery)):
	default:
		w.said, w.saidAt = text, now
		w.line(text)
	}
}

// line writes a line. On a terminal it overwrites the one before.
func (w *waiter) line(text string) {
	if w.bar {
		fmt.Fprintf(w.Out, "\r\x1b[K%s", text)
	} else {
		fmt.Fprintln(w.Out, text)
	}
}

// clear removes the line on the terminal.
func (w *waiter) clear() {
	if w.bar {
		w.line("")
	}
}

const barWidth = 30

func drawBar(percent float64) string {
	n := int(percent / 100 * barWidth)
	return "[" + strings.Repeat("#", n) + strings.Repeat(".", barWidth-n) + "]"
}
