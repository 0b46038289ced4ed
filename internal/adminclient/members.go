package adminclient

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"xdsrelay/internal/admin/sources"
	"xdsrelay/internal/telemetry"
)

// membersAtOnce bounds the members that are asked at the same time.
const membersAtOnce = 16

// Answer is what one member of the cluster answered.
type Answer[T any] struct {
	Member string
	Value  T
	Err    error
}

// memberNames returns the names of the members of the relay's cluster, without those that left, or have been
// dead for ignoreDead. Members that died later are there: others may only be cut off from them.
func (c *Client) memberNames(ctx context.Context, ignoreDead time.Duration) ([]string, error) {
	rows, err := ListOf[sources.Member](ctx, c, "/members")
	var names []string
	for i := range rows {
		dead := rows[i].State == telemetry.MemberDead && time.Since(rows[i].Since) >= ignoreDead
		if !dead && rows[i].State != telemetry.MemberLeft {
			names = append(names, rows[i].Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

// AskAll asks the members of the relay's cluster, over the relay: see memberNames. The answers are in
// the order of their names.
func AskAll[T any](ctx context.Context, c *Client, ignoreDead time.Duration, ask func(member *Client, name string) (T, error)) ([]Answer[T], error) {
	names, err := c.memberNames(ctx, ignoreDead)
	if err != nil {
		return nil, err
	}
	return Ask(c, names, ask), nil
}

// Ask asks members of the relay's cluster, over the relay. The answers are in the order of names.
func Ask[T any](c *Client, names []string, ask func(member *Client, name string) (T, error)) []Answer[T] {
	out := make([]Answer[T], len(names))
	var asking errgroup.Group
	asking.SetLimit(membersAtOnce)
	for i, name := range names {
		asking.Go(func() error {
			member := *c
			member.Base += "/members/" + url.PathEscape(name)
			out[i].Member = name
			out[i].Value, out[i].Err = ask(&member, name)
			return nil
		})
	}
	_ = asking.Wait() // the answers have the errors
	return out
}

// Silent returns an error that names the members that did not answer; nil: all did.
func Silent[T any](answers []Answer[T]) error {
	var names []string
	var first error
	for _, a := range answers {
		if a.Err != nil {
			names = append(names, a.Member)
			if first == nil {
				first = a.Err
			}
		}
	}
	if first == nil {
		return nil
	}
	return fmt.Errorf("no answer of %s: %w", strings.Join(names, ", "), first)
}
