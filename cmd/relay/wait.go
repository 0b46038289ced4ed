package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"xdsrelay/internal/orchestrator"
)

// newWaitCmd is `relay wait`.
func newWaitCmd() *cobra.Command {
	w := &waiter{}
	var flags *runningFlags
	cmd := &cobra.Command{
		Use:   "wait --key KEY --type TYPE --version VERSION",
		Short: "Wait until a version has come to so many of a key's clients",
		Long: `Wait until so many of a key's clients have a version of a type, or something newer.
The version is what the relay or the origin calls it; it need not be there yet.
Clients to whom the version is nothing count as well, as soon as they are in step
with it.

It exits 0 once it is reached, and 1 if it is not in time, or if so many clients
refuse it that it cannot be reached. While the relay cannot be reached, as when it is
restarted, it goes on; what came before a restart has to come again.`,
		Example: `  relay wait --key edge --type CDS --version v42 --percent 99 --timeout 5m
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
	f.DurationVar(&w.timeout, "timeout", 5*time.Minute, "how long to wait at most")
	f.DurationVar(&w.every, "every", time.Second, "how often to ask")
	needed(cmd, "key", "type", "version")
	completeKeys(cmd, flags)
	completeTypes(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case w.percent <= 0 || w.percent > 100:
			return fmt.Errorf("--percent: wants a number over 0 and up to 100, got %v", w.percent)
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
		w.relay, w.out, w.format = c, cmd.OutOrStdout(), *format
		w.bar = *format == formatText && isTerminal(w.out)
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

	relay  *adminClient
	out    io.Writer
	format string
	bar    bool // progress is one line that is written again and again

	last     orchestrator.Progress
	answered bool      // last is what a relay said
	away     error     // why the last question has no answer; nil: it has one
	refused  int       // answers in a row by which it cannot be reached
	most     int       // clients that were there lately, since a relay that drains has none at its end
	mostAt   time.Time // when
	before   int       // of them, before the relay was restarted
	until    time.Time // that they are waited for
	said     string    // the last line
	saidAt   time.Time
}

// settle is how long clients that were there before a restart are expected back.
const settle = time.Minute

// linesEvery is how often numbers are written that are others.
const linesEvery = 2 * time.Second

func (w *waiter) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	for {
		var p orchestrator.Progress
		q := url.Values{"type": {string(w.typ)}, "version": {w.version}}
		if w.last.Mark != "" {
			q.Set("mark", w.last.Mark)
		}
		err := w.relay.get(ctx, "/progress/"+url.PathEscape(w.key), q, &p)
		var said refusedError
		switch {
		case err == nil:
			w.hear(p, time.Now())
		case errors.As(err, &said) && said.status < 500: // it will say the same again
			return err
		case ctx.Err() == nil:
			w.away = err
		}
		switch {
		case err == nil && w.reached(time.Now()):
			return w.end("reached", nil)
		case w.refused > 1:
			return w.end("cannot be reached: too many refuse it", errReported)
		}
		w.show(time.Now())
		select {
		case <-tick.C:
		case <-ctx.Done():
			if !w.answered && w.away != nil {
				w.line("")
				return w.away
			}
			return w.end("not reached in "+w.timeout.String(), errReported)
		}
	}
}

// hear takes an answer.
func (w *waiter) hear(p orchestrator.Progress, now time.Time) {
	if w.answered && !p.Started.Equal(w.last.Started) {
		w.before, w.until = w.most, now.Add(settle)
	}
	if p.Clients >= w.most || now.Sub(w.mostAt) > settle {
		w.most, w.mostAt = p.Clients, now
	}
	w.last, w.answered, w.away = p, true, nil
	if w.possible() {
		w.refused = 0
	} else {
		w.refused++
	}
}

// expected is how many clients count. After a restart those that were there before
// are on their way back: the first that comes is not all of them.
func (w *waiter) expected(now time.Time) int {
	n := max(w.last.Clients, w.clients)
	if now.Before(w.until) {
		n = max(n, w.before)
	}
	return n
}

func (w *waiter) reached(now time.Time) bool {
	return w.last.Known && w.last.Clients >= w.clients && 100*float64(w.last.Reached) >= w.percent*float64(w.expected(now))
}

// possible reports whether those that do not refuse are enough.
func (w *waiter) possible() bool {
	p := &w.last
	return p.Refusing == 0 || 100*float64(p.Clients-p.Refusing) >= w.percent*float64(p.Clients)
}

// text is how far it has come.
func (w *waiter) text() string {
	p := &w.last
	var b strings.Builder
	switch {
	case !w.answered:
		return "no answer yet"
	case !p.Known:
		newest := "nothing is held of it"
		if p.Newest != "" {
			newest = "the newest is " + shortVersion(plain(p.Newest))
		}
		return fmt.Sprintf("the version has not come yet: %s; %d clients", newest, p.Clients)
	}
	fmt.Fprintf(&b, "%d of %d clients (%.1f %%)", p.Reached, p.Clients, p.Percent)
	if p.Pending > 0 {
		fmt.Fprintf(&b, ", %d pending", p.Pending)
		if l := p.Laggard; l != nil {
			fmt.Fprintf(&b, " (%s is %s for %s)", plain(l.Node), l.State, age(time.Since(l.Since)))
		}
	}
	if p.Refusing > 0 {
		fmt.Fprintf(&b, ", %d refuse it", p.Refusing)
		if l := p.Refuser; l != nil {
			fmt.Fprintf(&b, " (%s)", plain(l.Node))
		}
	}
	return b.String()
}

// show writes where it stands: on a terminal always, else what is another, and
// numbers not too often.
func (w *waiter) show(now time.Time) {
	if w.format != formatText {
		return
	}
	text, kind := w.text(), "numbers"
	if !w.last.Known {
		kind = text
	}
	if w.away != nil {
		text = "the relay does not answer, trying again: " + w.away.Error()
		kind = text
	}
	if w.bar {
		w.line(drawBar(w.last.Percent) + " " + text)
		return
	}
	if text == w.said || kind == "numbers" && w.saidAt.After(now.Add(-linesEvery)) {
		return
	}
	w.said, w.saidAt = text, now
	w.line(text)
}

// line writes one: on a terminal in the place of the one before.
func (w *waiter) line(text string) {
	if w.bar {
		fmt.Fprintf(w.out, "\r\x1b[K%s", text)
	} else if text != "" {
		fmt.Fprintln(w.out, text)
	}
}

const barWidth = 30

func drawBar(percent float64) string {
	n := int(percent / 100 * barWidth)
	return "[" + strings.Repeat("#", n) + strings.Repeat(".", barWidth-n) + "]"
}

// end says what came of it.
func (w *waiter) end(what string, err error) error {
	if w.format != formatText {
		if e := printSaid(w.out, w.format, w.last); e != nil {
			return e
		}
		return err
	}
	t := tintOf(w.out)
	colour := green
	if err != nil {
		colour = red
	}
	w.line(fmt.Sprintf("%s: %s", t.as(colour, what), w.text()))
	if w.bar {
		fmt.Fprintln(w.out)
	}
	return err
}
