package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"xdsrelay/internal/admin"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/telemetry"
)

// maxRefusalsShown bounds how many reasons for refused and ended streams are printed.
const maxRefusalsShown = 5

// state is what /server_info and /origins say about the relay itself.
type state struct {
	Info struct {
		State         string `json:"state"`
		Stale         int    `json:"stale_types"`
		Configuration *struct {
			NeedsRestart []string `json:"needs_restart"`
			Rejected     *struct {
				Faults []string `json:"faults"`
			} `json:"rejected"`
			RejectedFiles []admin.RejectedFile `json:"rejected_files"`
		} `json:"configuration"`
		Store *struct {
			Path      string `json:"path"`
			Off       bool   `json:"off"`
			LastError string `json:"last_error"`
		} `json:"store"`
		RecentRefusals []refusal.Recent `json:"recent_refusals"`
	}
	Origins []struct {
		Name        string     `json:"name"`
		Away        bool       `json:"away"`
		AwaySince   *time.Time `json:"away_since"`
		Silent      int        `json:"silent_streams"`
		SilentSince *time.Time `json:"silent_since"`
		LastError   string     `json:"last_error"`
		Faults      []string   `json:"faults"`
	}
}

func stateOf(ctx context.Context, c *adminClient) (s state, err error) {
	if err := c.get(ctx, "/server_info", nil, &s.Info); err != nil {
		return s, err
	}
	list := struct{ Items any }{&s.Origins}
	return s, c.get(ctx, "/origins", nil, &list)
}

// problems lists the relay's own problems, one line each. The states of clients do not show them:
// all may be SYNCED while an origin is away.
func (s *state) problems(now time.Time) (out []string) {
	since := func(t *time.Time) string {
		if t == nil {
			return ""
		}
		return " for " + age(now.Sub(*t))
	}
	say := func(format string, args ...any) { out = append(out, plain(fmt.Sprintf(format, args...))) }
	if s.Info.State != "serving" {
		say("the relay is %s", s.Info.State)
	}
	for _, o := range s.Origins {
		if o.Away {
			say("origin %s has been away%s: %s", o.Name, since(o.AwaySince), o.LastError)
		}
		if o.Silent > 0 {
			say("origin %s has not answered on %s%s", o.Name, counted(o.Silent, "stream"), since(o.SilentSince))
		}
		if len(o.Faults) > 0 {
			say("origin %s has files that cannot be used: %s", o.Name, strings.Join(o.Faults, "; "))
		}
	}
	if n := s.Info.Stale; n > 0 {
		of := "them"
		if n == 1 {
			of = "it"
		}
		say("the relay serves %s from the last known good: no origin has answered for %s since the relay started", counted(n, "type"), of)
	}
	if st := s.Info.Store; st != nil && st.Off {
		say("the store %s is off; the relay tries it again each minute: %s", st.Path, st.LastError)
	}
	for i, a := range s.Info.RecentRefusals {
		if i == maxRefusalsShown {
			say("the relay refused or ended streams for %s: see /server_info", counted(len(s.Info.RecentRefusals)-i, "more reason"))
			break
		}
		of := ""
		switch {
		case a.Key != "":
			of = ", key " + a.Key
		case a.Node != "":
			of = ", last node " + a.Node
		}
		what := "stream"
		if a.Reason == telemetry.Handshake.String() {
			what = "connection"
		}
		say("the relay refused or ended %s in the last minute; reason %s%s, last %s ago: %s", counted(a.Count, what), a.Reason, of, age(now.Sub(a.At)), a.Error)
	}
	if c := s.Info.Configuration; c != nil && len(c.NeedsRestart) > 0 {
		say("the configuration file has new values that need a restart: %s", strings.Join(c.NeedsRestart, ", "))
	}
	if c := s.Info.Configuration; c != nil && c.Rejected != nil {
		say("the configuration file has faults and is not in force: %s", strings.Join(c.Rejected.Faults, "; "))
	}
	if c := s.Info.Configuration; c != nil {
		for _, f := range c.RejectedFiles {
			say("%s: the changed file cannot be used; its former content has stayed in force%s: %s", f.Of, since(&f.Since), f.Error)
		}
	}
	return out
}

// printProblems prints the relay's own problems.
func printProblems(ctx context.Context, w io.Writer, c *adminClient, now time.Time) error {
	s, err := stateOf(ctx, c)
	if err != nil {
		return err
	}
	t := tintOf(w)
	for _, line := range s.problems(now) {
		_, _ = fmt.Fprintln(w, t.as(red, "! ")+line) // the reader of a pipe may have gone
	}
	return nil
}
