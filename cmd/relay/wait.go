package main

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

	"github.com/spf13/cobra"

	"xdsrelay/internal/admin/keystatus"
)

// newWaitCmd is `relay wait`.
func newWaitCmd() *cobra.Command {
	w := &waiter{}
	var flags *runningFlags
	cmd := &cobra.Command{
		Use:   "wait --key KEY --type TYPE --version VERSION",
		Short: "Wait until a version has come to so many of a key's clients",
		Long: `Wait until so many of a key's clients have a version of a type. The version is what
the relay or the origin calls it; it need not be there yet. A client has it if it
acknowledged it or a later version, or if nothing in it is for the client. A client
that refused the version counts as refusing it until it acknowledges a later response.
Names that the origin leaves unanswered are not waited for. A node that has several
streams of the type counts once.

A version counts from when it is the newest. Later is what came later, whatever it is
called: a client that acknowledged a roll-back has the versions before it. A version
that was replaced before the wait began does not count until it comes again; with
--or-newer it does.

A version may end the very clients that take it. So those who were there since the
wait began are expected back, and count as not reached, until they have been away for
--settle. If the version is there by then, and more than --lost percent of them have
gone for good, that is no success, whoever has it of the rest. Who takes clients out
while a version is rolled, or has them replaced, says so by a higher --lost.

It exits with
  0  reached
  1  an error: a flag, a token, or no relay answers
  2  not in time
  3  cannot be reached: too many clients refuse it, another version replaced it before
     the wait began, or more clients than --lost left and did not come back

A key is taken as it is shown: a/b is a key of two elements, "a/b" another, of one.

A token that is renewed is read again from its file. While the relay stops, is restarted or cannot be reached, it goes on trying, and
what a relay that stops says of its last clients does not count. What came before a
restart has to come again.`,
		Example: `  relay wait --key edge --type CDS --version v42 --percent 99 --timeout 5m
  relay wait --key edge --type CDS --version v42 --or-newer -o json
  relay wait --key edge --type EDS --version v42 --admin 10.0.0.5:19000 --token-file token`,
		Args: cobra.NoArgs,
	}
	format := addOutputFlag(cmd, formatText, formatJSON, formatYAML)
	flags = addRunningFlags(cmd)
	f := cmd.Flags()
	f.StringVarP(&w.key, "key", "k", "", "the key")
	f.VarP(&w.typ, "type", "t", "the type: a URL, or a short name such as CDS")
	f.StringVar(&w.version, "version", "", "the version")
	f.Float64Var(&w.percent, "percent", 100, "of the clients, that are to have it")
	f.IntVar(&w.clients, "clients", 1, "how many are to be there at least")
	f.BoolVar(&w.newer, "or-newer", false, "count the version also if another one replaced it before the wait began")
	f.DurationVar(&w.settle, "settle", settle, "how long clients that were there are expected back")
	f.Float64Var(&w.lost, "lost", 10, "percent of the clients that were there that may leave for good")
	f.DurationVar(&w.timeout, "timeout", 5*time.Minute, "how long to wait at most")
	f.DurationVar(&w.every, "every", time.Second, "how often to ask")
	needed(cmd, "key", "type", "version")
	completeKeys(cmd, flags)
	completeTypes(cmd)
	completeVersions(cmd, flags, &w.key, &w.typ)
	completeNothing(cmd, "percent", "clients", "settle", "lost", "timeout", "every")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case w.percent <= 0 || w.percent > 100:
			return fmt.Errorf("--percent: wants a number over 0 and up to 100, got %v", w.percent)
		case w.lost < 0 || w.lost > 100:
			return fmt.Errorf("--lost: wants a number from 0 to 100, got %v", w.lost)
		case w.settle < 0:
			return fmt.Errorf("--settle: wants a time, got %s", w.settle)
		case w.timeout <= 0:
			return fmt.Errorf("--timeout: wants a time over 0, got %s", w.timeout)
		case w.every <= 0:
			return fmt.Errorf("--every: wants a time over 0, got %s", w.every)
		case w.version == "":
			return errors.New("--version: wants a version")
		}
		c, err := flags.client()
		if err != nil {
			return err
		}
		defer c.close()
		w.relay, w.out, w.errs, w.format = c, cmd.OutOrStdout(), cmd.ErrOrStderr(), *format
		w.bar = *format == formatText && redrawn(w.out)
		w.width = func() int { return terminalWidth(w.out) }
		return w.wait(commandContext(cmd))
	}
	return cmd
}

// waiter waits for a version. It has one user.
type waiter struct {
	key, version   string
	typ            typeFlag
	percent        float64
	clients        int
	timeout, every time.Duration
	settle         time.Duration // how long those who were there are expected back
	lost           float64       // percent of them that may leave for good

	newer bool

	relay     *adminClient
	out, errs io.Writer
	format    string
	bar       bool       // progress is one line that is written again and again
	width     func() int // of that line

	last     keystatus.Progress
	answered bool      // last is what a relay said, which did not stop just then
	stopping bool      // it does now
	away     error     // why the last question has no answer; nil: it has one
	barred   time.Time // since when the token is none; zero: it is one
	futile   int       // answers in a row by which it cannot be reached
	members  members   // who was there
	note     string    // what the relay said of the key
	said     string    // the last line
	saidAt   time.Time
	noted    string // the last that was said of what is in the way
}

// settle is how long clients that were there are expected back, and a token that was one
// to be one again: Envoy waits for up to half of it before it connects again.
const settle = time.Minute

// linesEvery is how often numbers are written that are others.
const linesEvery = 2 * time.Second

// What a wait exits with beside 0 and 1.
const (
	exitLate   = 2
	exitFutile = 3
)

// The results of a wait, as JSON has them.
const (
	isReached    = "reached"
	isLate       = "timeout"
	isRefused    = "refused"
	isSuperseded = "superseded"
	isLost       = "lost"
	isFailed     = "error"
)

func (w *waiter) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	for {
		var p progress
		q := url.Values{"type": {string(w.typ)}, "version": {w.version}}
		if w.last.Mark != "" {
			q.Set("mark", w.last.Mark)
		}
		if w.newer {
			q.Set("or_newer", "true")
		}
		err := w.relay.get(ctx, "/progress/"+url.PathEscape(cmp.Or(w.last.Key, w.key)), q, &p) // the same key each time
		var said refusedError
		switch {
		case err == nil:
			w.note = p.Note
			w.hear(p.Progress, time.Now())
		case errors.As(err, &said) && said.status < 500 && !w.renews(said.status, time.Now()): // it will say the same again
			return w.fail(err)
		case ctx.Err() == nil:
			w.away = err
		}
		switch {
		case err == nil && w.reached():
			return w.end(isReached, "reached", nil)
		case err == nil && w.gone() > 0:
			w.clear()
			fmt.Fprintf(w.errs, "relay: %d of %d clients left since the wait began, and did not come back in %s; --lost allows %v %%\n", w.gone(), w.members.peak, w.settle, w.lost)
			return w.end(isLost, "too many clients are gone", exitError(exitFutile))
		case w.futile > 1:
			return w.end(isRefused, "cannot be reached: too many refuse it", exitError(exitFutile))
		}
		w.show(time.Now())
		select {
		case <-tick.C:
		case <-ctx.Done():
			return w.late()
		}
	}
}

// progress is what /progress answers.
type progress struct {
	keystatus.Progress
	Note string `json:"note"`
}

// renews reports whether a refusal is one that passes: the token was one before, and
// its file is being renewed, here or at the relay.
func (w *waiter) renews(status int, now time.Time) bool {
	if status != http.StatusUnauthorized || !w.answered && !w.stopping {
		return false
	}
	if w.barred.IsZero() {
		w.barred = now
	}
	_ = w.relay.readToken() // in the midst of being written, it may be none
	return now.Sub(w.barred) < settle
}

// late is the end of the time.
func (w *waiter) late() error {
	what := "not reached in " + w.timeout.String()
	switch {
	case !w.answered && !w.stopping && w.away != nil:
		return w.fail(w.away)
	case w.last.SupersededBy != "" && !w.last.Known:
		return w.end(isSuperseded, what, exitError(exitFutile))
	}
	return w.end(isLate, what, exitError(exitLate))
}

// hear takes an answer. Of a relay that stops, the clients that it still has say
// nothing of the others.
func (w *waiter) hear(p keystatus.Progress, now time.Time) {
	again := w.away != nil || w.stopping // it could not tell meanwhile who left
	w.away, w.barred, w.stopping = nil, time.Time{}, p.Draining
	if p.Draining {
		w.futile = 0
		return
	}
	restarted := w.answered && !p.Started.Equal(w.last.Started)
	w.members.hear(&p, again || restarted, restarted, w.settle, now)
	w.last, w.answered = p, true
	if w.possible() {
		w.futile = 0
	} else {
		w.futile++
	}
}

// expected is how many clients count. Those that were there a moment ago are on their
// way back, or the version has ended them: who is left is not all of them.
func (w *waiter) expected() int {
	return max(w.members.lately(), w.last.Clients, w.clients)
}

// gone is how many clients are gone for good, if they are more than may be.
func (w *waiter) gone() int {
	n := w.members.gone()
	if 100*float64(n) <= w.lost*float64(w.members.peak) {
		return 0
	}
	return n
}

func (w *waiter) reached() bool {
	return !w.stopping && w.last.Known && w.last.Clients >= w.clients && w.gone() == 0 && 100*float64(w.last.Reached) >= w.percent*float64(w.expected())
}

// possible reports whether the clients that do not refuse are enough.
func (w *waiter) possible() bool {
	p := &w.last
	return p.Refusing == 0 || 100*float64(p.Clients-p.Refusing) >= w.percent*float64(p.Clients)
}

// text is how far it has come.
func (w *waiter) text() string {
	p := &w.last
	by := shortVersion(plain(p.SupersededBy))
	var b strings.Builder
	switch {
	case !w.answered:
		return "no answer yet"
	case !p.InUse:
		return plain(cmp.Or(w.note, fmt.Sprintf("key %s is not in use", w.key)))
	case !p.Known && p.SupersededBy != "":
		return fmt.Sprintf("superseded by %s before the wait began, and not come again; %s", by, counted(p.Clients, "client"))
	case !p.Known:
		newest := "nothing is held of it"
		if p.Newest != "" {
			newest = "the newest is " + shortVersion(plain(cmp.Or(p.NewestOrigin, p.Newest)))
		}
		return fmt.Sprintf("the version has not come yet: %s; %s", newest, counted(p.Clients, "client"))
	}
	fmt.Fprintf(&b, "%d of %s (%.1f %%)", p.Reached, counted(p.Clients, "client"), p.Percent)
	if p.SupersededBy != "" {
		fmt.Fprintf(&b, ", superseded by %s, which counts as well", by)
	}
	if n := w.members.lately() - p.Clients; n > 0 {
		fmt.Fprintf(&b, ", %d more were there lately", n)
	}
	if p.Pending > 0 {
		fmt.Fprintf(&b, ", %d pending", p.Pending)
		if l := p.Laggard; l != nil {
			fmt.Fprintf(&b, " (%s is %s for %s)", plain(l.Node), l.State, age(time.Since(l.Since)))
		}
	}
	if p.Refusing > 0 {
		verb := "refuse"
		if p.Refusing == 1 {
			verb = "refuses"
		}
		fmt.Fprintf(&b, ", %d %s it", p.Refusing, verb)
		if l := p.Refuser; l != nil {
			fmt.Fprintf(&b, " (%s)", plain(l.Node))
		}
	}
	if p.Clients < w.clients {
		fmt.Fprintf(&b, ", and --clients wants %d", w.clients)
	}
	return b.String()
}

// inTheWay is what has to change before anything can be reached; empty: nothing.
func (w *waiter) inTheWay() string {
	p := &w.last
	switch {
	case !w.barred.IsZero():
		return "trying again with what the file of the token has: " + firstLine(w.away)
	case w.away != nil:
		return "the relay does not answer, trying again: " + firstLine(w.away)
	case w.stopping:
		return "the relay is stopping, waiting for it to be back"
	case w.answered && !p.InUse:
		return plain(cmp.Or(w.note, fmt.Sprintf("key %s is not in use", w.key))) + ": no client has it; waiting for one"
	case w.answered && p.SupersededBy != "" && !p.Known:
		return fmt.Sprintf("version %s was superseded by %s before the wait began: waiting for it to come again; --or-newer would count what came after it",
			plain(w.version), shortVersion(plain(p.SupersededBy)))
	case w.answered && !p.Known && w.note != "":
		return "the version has not come: " + plain(w.note)
	}
	return ""
}

// show writes where it stands: on a terminal always, else what is another, and
// numbers not too often. What is in the way is written to standard error, once.
func (w *waiter) show(now time.Time) {
	obstacle := w.inTheWay()
	if obstacle != w.noted {
		w.noted = obstacle
		if obstacle != "" {
			w.clear()
			fmt.Fprintln(w.errs, "relay:", obstacle)
		}
	}
	if w.format != formatText {
		return
	}
	text := w.text()
	switch {
	case w.bar && w.last.Known && obstacle == "":
		w.line(cutTo(drawBar(100*float64(w.last.Reached)/float64(max(w.expected(), 1)))+" "+text, w.width()))
	case w.bar:
		w.line(cutTo(cmp.Or(obstacle, text), w.width()))
	case obstacle != "", text == w.said, w.last.Known && w.saidAt.After(now.Add(-linesEvery)):
	default:
		w.said, w.saidAt = text, now
		w.line(text)
	}
}

// line writes one: on a terminal in the place of the one before.
func (w *waiter) line(text string) {
	if w.bar {
		fmt.Fprintf(w.out, "\r\x1b[K%s", text)
	} else {
		fmt.Fprintln(w.out, text)
	}
}

// firstLine is what an error says in short.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// clear takes a line away that stands on the terminal.
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

// end says what came of it.
func (w *waiter) end(result, what string, err error) error {
	if w.format != formatText {
		said := w.outcome(result)
		if e := printData(w.out, w.format, said); e != nil {
			return e
		}
		return err
	}
	colour := green
	if err != nil {
		colour = red
	}
	text := w.text()
	if obstacle := w.inTheWay(); w.away != nil || w.stopping {
		text = obstacle
	}
	w.line(fmt.Sprintf("%s: %s", tintOf(w.out).as(colour, what), text))
	if w.bar {
		fmt.Fprintln(w.out)
	}
	return err
}
