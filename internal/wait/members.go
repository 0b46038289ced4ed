package wait

import (
	"context"

	"xdsrelay/internal/admin/keystatus"
	"xdsrelay/internal/adminclient"
)

// askAllMembers asks all members of the cluster, and returns their sum. It is an error if one does not
// answer.
func (w *waiter) askAllMembers(ctx context.Context) (progress, error) {
	answers, err := adminclient.AskAll(ctx, w.Relay, w.IgnoreDead, func(member *adminclient.Client, name string) (progress, error) {
		return w.askOne(ctx, member, w.marks[name])
	})
	if err == nil {
		err = adminclient.Silent(answers)
	}
	if err != nil {
		return progress{}, err
	}
	all := make([]progress, len(answers))
	for i, a := range answers {
		w.marks[a.Member], all[i] = a.Value.Mark, a.Value
	}
	return sum(all), nil
}

// sum adds the progress of relays. Only those with clients say something about the version, unless no
// relay has any. all has at least one: the relay that was asked.
func sum(all []progress) progress {
	out := all[0]
	for _, p := range all[1:] {
		if better := p.Clients > 0 && out.Clients == 0 || p.InUse && !out.InUse; better {
			out = p
		}
	}
	decisive := out.Clients > 0
	out.Clients, out.Reached, out.Nacking, out.Pending, out.Percent = 0, 0, 0, 0, 0
	for _, p := range all {
		out.Draining = out.Draining || p.Draining
		if p.Started.After(out.Started) {
			out.Started = p.Started
		}
		if decisive && p.Clients == 0 {
			continue
		}
		out.Clients += p.Clients
		out.Reached += p.Reached
		out.Nacking += p.Nacking
		out.Pending += p.Pending
		out.Laggard, out.NackingClient = longest(out.Laggard, p.Laggard), longest(out.NackingClient, p.NackingClient)
		if p.Clients > 0 && !p.Known && out.Known { // what it says is what is waited for
			out.Known, out.SupersededBy, out.Newest, out.NewestOrigin, out.Note = false, p.SupersededBy, p.Newest, p.NewestOrigin, p.Note
		}
	}
	if out.Clients > 0 {
		out.Percent = 100 * float64(out.Reached) / float64(out.Clients)
	}
	return out
}

// longest returns the one of two clients that has been in its state for longer. Either may be nil.
func longest(a, b *keystatus.Laggard) *keystatus.Laggard {
	if a == nil || b != nil && b.Since.Before(a.Since) {
		return b
	}
	return a
}
