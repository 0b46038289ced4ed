package main

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"xdsrelay/internal/admin/sources"
	"xdsrelay/internal/cluster"
	"xdsrelay/internal/telemetry"
)

// membersAtOnce bounds the members that are asked at the same time.
const membersAtOnce = 16

// answer is what one member of the cluster answered.
type answer[T any] struct {
	member string
	value  T
	err    error
}

// memberNames returns the names of the members of the relay's cluster, without those that left, or have been
// dead for ignoreDead. Members that died later are there: others may only be cut off from them.
func (c *adminClient) memberNames(ctx context.Context, ignoreDead time.Duration) ([]string, error) {
	items, err := c.list(ctx, "/members", nil)
	if err != nil {
		return nil, err
	}
	rows, err := decode[sources.Member](c, items)
	var names []string
	for i := range rows {
		dead := rows[i].State == string(telemetry.MemberDead) && time.Since(rows[i].Since) >= ignoreDead
		if !dead && rows[i].State != string(telemetry.MemberLeft) {
			names = append(names, rows[i].Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

// askAllMembers asks the members of the relay's cluster, over the relay: see memberNames. The answers are in
// the order of their names.
func askAllMembers[T any](ctx context.Context, c *adminClient, ignoreDead time.Duration, ask func(member *adminClient, name string) (T, error)) ([]answer[T], error) {
	names, err := c.memberNames(ctx, ignoreDead)
	if err != nil {
		return nil, err
	}
	return askMembers(c, names, ask), nil
}

// addIgnoreDeadFlag adds the flag to a command with --members.
func addIgnoreDeadFlag(cmd *cobra.Command, d *time.Duration) {
	cmd.Flags().DurationVar(d, "ignore-dead", cluster.KeepEnded, "with --members, do not ask a relay that has been dead for so long")
	completeNothing(cmd, "ignore-dead")
}

// askMembers asks members of the relay's cluster, over the relay. The answers are in the order of names.
func askMembers[T any](c *adminClient, names []string, ask func(member *adminClient, name string) (T, error)) []answer[T] {
	out := make([]answer[T], len(names))
	places := make(chan struct{}, membersAtOnce)
	var asking sync.WaitGroup
	for i, name := range names {
		places <- struct{}{}
		asking.Go(func() {
			defer func() { <-places }()
			member := *c
			member.base += "/members/" + url.PathEscape(name)
			out[i].member = name
			out[i].value, out[i].err = ask(&member, name)
		})
	}
	asking.Wait()
	return out
}

// silent returns an error that names the members that did not answer; nil: all did.
func silent[T any](answers []answer[T]) error {
	var names []string
	var first error
	for _, a := range answers {
		if a.err != nil {
			names = append(names, a.member)
			if first == nil {
				first = a.err
			}
		}
	}
	if first == nil {
		return nil
	}
	return fmt.Errorf("no answer of %s: %w", strings.Join(names, ", "), first)
}
