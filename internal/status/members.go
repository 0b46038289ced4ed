package status

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"xdsrelay/internal/admin/overview"
	"xdsrelay/internal/adminclient"
	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/terminal"
)

// memberStatus is what a member has to show.
type memberStatus struct {
	clients  []inspect.ClientStatus
	problems []overview.Problem
}

// printMembers prints the clients and the problems of all members. An error names those that did not
// answer, after the answers of the others.
func (s *Report) printMembers(ctx context.Context, table, rest, to io.Writer) error {
	path, _, filter := s.query()
	answers, err := adminclient.AskAll(ctx, s.Relay, s.IgnoreDead, func(member *adminclient.Client, name string) (out memberStatus, err error) {
		items, err := member.List(ctx, path, filter)
		if said := (adminclient.StatusError{}); s.Node != nil && errors.As(err, &said) && said.Status == http.StatusNotFound {
			items, err = nil, nil // the node is at another member
		}
		if err != nil {
			return out, err
		}
		if out.clients, err = adminclient.DecodeItems[inspect.ClientStatus](member, items); err != nil {
			return out, err
		}
		for i := range out.clients {
			out.clients[i].Member = name
		}
		out.problems, err = member.Problems(ctx)
		for i := range out.problems {
			out.problems[i].Text = name + ": " + out.problems[i].Text
		}
		return out, err
	})
	if err != nil {
		return err
	}
	all := memberStatus{clients: []inspect.ClientStatus{}}
	for _, a := range answers {
		if a.Err == nil {
			all.clients, all.problems = append(all.clients, a.Value.clients...), append(all.problems, a.Value.problems...)
		}
	}
	if s.IsData() {
		items := make([]json.RawMessage, len(all.clients))
		for i := range items {
			if items[i], err = json.Marshal(&all.clients[i]); err != nil {
				return err
			}
		}
		return errors.Join(terminal.PrintList(table, s.Format, items), adminclient.Silent(answers))
	}
	now := time.Now()
	t := newTable(all.clients, s.Type, s.Wide())
	t.members = true
	t.print(table, rest, s.Layout, now)
	printProblems(to, all.problems, now)
	return adminclient.Silent(answers)
}
