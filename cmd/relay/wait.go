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
	"xdsrelay/internal/adminclient"
	"xdsrelay/internal/terminal"
)

func newWaitCmd() *cobra.Command {
	w := &waiter{marks: make(map[string]string)}
	var flags *runningFlags
	cmd := &cobra.Command{
		Use:   "wait --key KEY --type TYPE --version VERSION",
		Short: "Wait until enough clients of a key acknowledged a version",
		Long: `Wait until enough clients of a key acknowledged a version of a type. The version may
still have to come.

A client has the version if it acknowledged it or a later one, or if the version has
no resources for the client. The order of versions is their order in time, not by
name. A client that rejected the version does not have it until it acknowledges a
later response. The command does not wait for names for which the origin has not
answered. A node with several streams of the type counts once. Of its streams with the
same names on several connections, the newest decides.

If another version replaced the version before the wait began, the version counts
only when it comes again, or with --or-newer.

A bad version may crash its clients. Clients that disconnect during the wait therefore
still count, without the version, for the time --settle. If more than --lost percent
of the clients have not come back by then, the wait fails. Set a higher --lost if you
remove or replace clients during the wait.

--members counts the clients of all relays of the cluster. The relay asks the others,
and each has 2 s to answer. While one of them does not answer, the version is not
reached. A relay that died counts as one of them for ten minutes, because it may only be
cut off and still have clients. If you know that it is gone, --ignore-dead 0s ends that.
A relay that left does not count.

Exit codes:
  0  Enough clients have the version.
  1  Error: a wrong flag, a wrong token, or no answer of the relay at all.
  2  Not enough clients have the version when --timeout ends.
  3  The version cannot reach enough clients: too many clients reject it, another
     version replaced it before the wait began, or too many clients stay away.

The wait continues while the relay restarts or cannot be reached, and reads a changed
token file again. After a restart of the relay, a version from before the restart has
to come again.`,
		Example: `  relay wait --key edge --type CDS --version v42 --percent 99 --timeout 5m
  relay wait --key edge --type CDS --version v42 --or-newer -o json
  relay wait --key edge --type CDS --version v42 --members
  relay wait --key edge --type EDS --version v42 --admin 10.0.0.5:19000 --token-file token`,
		Args: noArgs,
	}
	format := addOutputFlag(cmd, terminal.FormatText, terminal.FormatJSON, terminal.FormatYAML)
	flags = addRunningFlags(cmd)
	f := cmd.Flags()
	f.StringVarP(&w.key, "key", "k", "", "the key, as relay status shows it")
	f.VarP(&w.typ, "type", "t", "the resource type, a short name such as CDS or a URL")
	f.StringVar(&w.version, "version", "", "the version that the origin gave, or that the relay made from the content")
	f.Float64Var(&w.percent, "percent", 100, "share of the clients that must have the version, in percent")
	f.IntVar(&w.clients, "clients", 1, "least number of clients")
	f.BoolVar(&w.all, "members", false, "count the clients of all relays of the cluster")
	addIgnoreDeadFlag(cmd, &w.ignoreDead)
	f.BoolVar(&w.newer, "or-newer", false, "accept the version even if another one replaced it before the wait began")
	f.DurationVar(&w.settle, "settle", settle, "time in which disconnected clients can come back")
	f.Float64Var(&w.lost, "lost", 10, "share of the clients that may stay away, in percent")
	f.DurationVar(&w.timeout, "timeout", 5*time.Minute, "longest time to wait")
	f.DurationVar(&w.every, "every", time.Second, "time between two requests to the relay")
	markRequired(cmd, "key", "type", "version")
	completeKeys(cmd, flags)
	completeTypes(cmd)
	completeVersions(cmd, flags, &w.key, &w.typ)
	completeNothing(cmd, "percent", "clients", "settle", "lost", "timeout", "every")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case w.percent <= 0 || w.percent > 100:
			return usageErrorf("--percent: must be over 0 and at most 100, but is %v", w.percent)
		case w.lost < 0 || w.lost > 100:
			return usageErrorf("--lost: must be from 0 to 100, but is %v", w.lost)
		case w.settle < 0:
			return usageErrorf("--settle: must not be negative, but is %s", w.settle)
		case w.timeout <= 0:
			return usageErrorf("--timeout: must be over 0, but is %s", w.timeout)
		case w.every <= 0:
			return usageErrorf("--every: must be over 0, but is %s", w.every)
		case w.version == "":
			return usageErrorf("--version: must not be empty")
		}
		c, err := flags.client()
		if err != nil {
			return err
		}
		defer c.Close()
		w.relay, w.out, w.errs, w.format = c, cmd.OutOrStdout(), cmd.ErrOrStderr(), *format
		w.bar = *format == terminal.FormatText && terminal.Overwrites(w.out)
		w.width = func() int { return terminal.Width(w.out) }
		return w.wait(cmd.Context())
	}
	return cmd
}

// waiter waits for a version. It is not safe for concurrent use.
type waiter struct {
	key, version   string
	typ            typeFlag
	percent        float64
	clients        int
	timeout, every time.Duration
	settle         time.Duration // how long clients that left are expected back
	lost           float64       // percent of them that may leave for good

	newer bool
	all   bool // members of the cluster
	// ignoreDead is that of memberNames.
	ignoreDead time.Duration

	relay     *adminclient.Client
	out, errs io.Writer
	format    string
	bar       bool       // progress is one line that is overwritten
	width     func() int // of that line

	marks             map[string]string  // the last mark of each relay; "": the one that is asked alone
	last              keystatus.Progress // the sum of all relays
	answered          bool               // last is an answer of a relay that was not stopping
	stopping          bool               // the relay is stopping
	away              error              // the error of the last request; nil: it has an answer
	unauthorizedSince time.Time          // since when the relay rejects the token; zero: it accepts it
	unreachable       int                // successive answers by which the version cannot be reached
	members           members            // how many clients were there
	note              string             // the relay's remark about the key
	said              string             // the last line that was written
	saidAt            time.Time
	noted             string // the last obstacle that was written
}

// settle is how long clients that left are expected back, and how long a rejected token may take to
// be renewed. Envoy waits for up to half of it before it reconnects.
const settle = time.Minute

// linesEvery is the shortest time between two lines that differ only in numbers.
const linesEvery = 2 * time.Second

// The exit codes of a wait beside 0 and 1.
const (
	exitLate        = 2
	exitUnreachable = 3
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

func (w *waiter) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	tick := time.NewTicker(w.every)
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
			fmt.Fprintf(w.errs, "relay: %d of %d clients left during the wait and did not come back within %s; --lost allows %v %%\n", w.gone(), w.members.peak, w.settle, w.lost)
			return w.end(isLost, "too many clients left", exitError(exitUnreachable))
		case w.unreachable > 1:
			return w.end(isNacked, "cannot be reached: too many clients reject the version", exitError(exitUnreachable))
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
	if w.all {
		return w.askAllMembers(ctx)
	}
	p, err := w.askOne(ctx, w.relay, w.marks[""])
	if err == nil {
		w.marks[""] = p.Mark
	}
	return p, err
}

// askOne asks one relay, whose last mark is given.
func (w *waiter) askOne(ctx context.Context, relay *adminclient.Client, mark string) (p progress, err error) {
	q := url.Values{"type": {string(w.typ)}, "version": {w.version}}
	if mark != "" {
		q.Set("mark", mark)
	}
	if w.newer {
		q.Set("or_newer", "true")
	}
	err = relay.Get(ctx, "/progress/"+url.PathEscape(cmp.Or(w.last.Key, w.key)), q, &p) // last.Key, so that all answers are about one key
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
	_ = w.relay.ReadToken() // a file that is just being written may have no token
	return now.Sub(w.unauthorizedSince) < settle
}

// late ends a wait that ran out of time.
func (w *waiter) late() error {
	what := "not reached within " + w.timeout.String()
	switch {
	case !w.answered && !w.stopping && w.away != nil:
		return w.fail(w.away)
	case w.last.SupersededBy != "" && !w.last.Known:
		return w.end(isSuperseded, what, exitError(exitUnreachable))
	}
	return w.end(isLate, what, exitError(exitLate))
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
	w.members.record(&p, again || restarted, restarted, w.settle, now)
	w.last, w.answered = p, true
	if w.possible() {
		w.unreachable = 0
	} else {
		w.unreachable++
	}
}

// expected is the number of clients that percentages refer to. It includes clients that left a
// moment ago: they may come back, or the version may have crashed them.
func (w *waiter) expected() int {
	return max(w.members.lately(), w.last.Clients, w.clients)
}

// gone is the number of clients that left for good, or 0 if --lost allows so many.
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

// possible reports whether enough clients have not NACKed the version.
func (w *waiter) possible() bool {
	p := &w.last
	return p.Nacking == 0 || 100*float64(p.Clients-p.Nacking) >= w.percent*float64(p.Clients)
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
		return terminal.Visible(cmp.Or(w.note, fmt.Sprintf("key %s is not in use", w.key)))
	case !p.Known && p.SupersededBy != "":
		return fmt.Sprintf("superseded by %s before the wait began, and not seen since; %s", by, terminal.Counted(p.Clients, "client"))
	case !p.Known:
		newest := "the relay has no version"
		if p.Newest != "" {
			newest = "the newest is " + terminal.ShortVersion(terminal.Visible(cmp.Or(p.NewestOrigin, p.Newest)))
		}
		return fmt.Sprintf("the version has not arrived yet: %s; %s", newest, terminal.Counted(p.Clients, "client"))
	}
	fmt.Fprintf(&b, "%d of %s (%.1f %%)", p.Reached, terminal.Counted(p.Clients, "client"), p.Percent)
	if p.SupersededBy != "" {
		fmt.Fprintf(&b, ", superseded by %s, which also counts", by)
	}
	if n := w.members.lately() - p.Clients; n > 0 {
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
	if p.Clients < w.clients {
		fmt.Fprintf(&b, ", but --clients requires %d", w.clients)
	}
	return b.String()
}

// obstacle describes the obstacle to any progress; empty: there is none.
func (w *waiter) obstacle() string {
	p := &w.last
	switch {
	case !w.unauthorizedSince.IsZero():
		return "the relay rejects the token; trying again: " + terminal.FirstLine(w.away)
	case w.away != nil && w.all:
		return "not all members answer; trying again: " + terminal.FirstLine(w.away)
	case w.away != nil:
		return "the relay does not answer; trying again: " + terminal.FirstLine(w.away)
	case w.stopping:
		return "the relay is stopping; waiting for it to come back"
	case w.answered && !p.InUse:
		return terminal.Visible(cmp.Or(w.note, fmt.Sprintf("key %s is not in use", w.key))) + "; waiting for a client with this key"
	case w.answered && p.SupersededBy != "" && !p.Known:
		// Without the newer version, which may change often: each text is printed once.
		return fmt.Sprintf("version %s was superseded before the wait began; waiting until it arrives again; --or-newer accepts a newer version", terminal.Visible(w.version))
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
			fmt.Fprintln(w.errs, "relay:", obstacle)
		}
	}
	if w.format != terminal.FormatText {
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
		fmt.Fprintf(w.out, "\r\x1b[K%s", text)
	} else {
		fmt.Fprintln(w.out, text)
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

// end writes the result and returns err.
func (w *waiter) end(result, what string, err error) error {
	if w.format != terminal.FormatText {
		said := w.outcome(result)
		if e := terminal.PrintData(w.out, w.format, said); e != nil {
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
	w.line(fmt.Sprintf("%s: %s", terminal.StyleOf(w.out).Colour(colour, what), text))
	if w.bar {
		fmt.Fprintln(w.out)
	}
	return err
}
