package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"xdsrelay/internal/telemetry"

	"github.com/hashicorp/memberlist"
)

const (
	// joinEvery is about how often Options.Join is resolved, and some of its addresses are joined.
	joinEvery = 30 * time.Second
	// joinFirst is the same until another member is known, or maxJoin has passed.
	joinFirst = time.Second
	// maxJoin is how long Joined waits for another member.
	maxJoin = 10 * time.Second
	// joinsAtOnce bounds the addresses that are joined each time.
	joinsAtOnce = 3
	// resolveTimeout is for one name of Options.Join.
	resolveTimeout = 5 * time.Second
)

// joiner joins the addresses of Options.Join that are not alive. Only its own goroutine uses it.
type joiner struct {
	*Cluster
	list *memberlist.Memberlist
	// failing has what failed in the last attempt, which is logged once.
	failing map[failure]bool
}

// failure is a message of the log, and the name or address that it is about.
type failure struct{ message, subject string }

// run joins periodically until ctx ends.
func (j *joiner) run(ctx context.Context) {
	for {
		j.join(ctx)
		every := joinEvery
		if !j.isJoined() {
			every = joinFirst
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(every*3/4 + rand.N(every/2)): // spread: not all members join the same one at once
		}
	}
}

// join resolves Options.Join once, and joins some of the addresses that are not alive.
func (j *joiner) join(ctx context.Context) {
	var self netip.AddrPort
	alive := make(map[netip.AddrPort]bool)
	for _, m := range j.Members() {
		if m.State == telemetry.MemberAlive || m.State == telemetry.MemberUnusable {
			alive[m.gossip] = true
		}
		if m.Self {
			self = m.gossip
		}
	}
	current := map[string]bool{self.String(): true}
	missing := make(map[netip.AddrPort]bool)
	unjoined := 0
	alone := true // nothing but self was found
	for _, target := range j.options.Join {
		addresses, err := j.resolve(ctx, target)
		j.report(ctx, "cannot resolve a name of cluster.join", target, err)
		current[target] = true
		alone = alone && err == nil
		if err != nil {
			unjoined++
		}
		for _, a := range addresses {
			alone = alone && a == self
			if !alive[a] {
				missing[a], current[a.String()] = true, true
			}
		}
	}
	var err error
	if alone && j.isJoined() { // or names of others may come yet
		err = errors.New("no other address is known")
	}
	j.report(ctx, "cluster.join names only this relay", self.String(), err)

	unjoined += len(missing)
	n := 0
	for a := range missing { // in random order
		if n++; n > joinsAtOnce || ctx.Err() != nil {
			break
		}
		_, err := j.list.Join([]string{a.String()})
		if err != nil {
			err = explain(err)
		} else {
			unjoined--
		}
		j.report(ctx, "cannot join a member", a.String(), err)
	}
	j.options.Metrics.ClusterUnjoined.Set(unjoined)
	maps.DeleteFunc(j.failing, func(f failure, _ bool) bool { return !current[f.subject] })
}

// explain adds the reason to an error of memberlist's Join, if it is a peer's fault.
func explain(err error) error {
	if one := errors.Unwrap(err); one != nil { // of the list that err is
		err = one
	}
	fault := faultOf(err.Error())
	switch {
	case strings.Contains(err.Error(), "dial "):
		return err // it was not reached
	case fault == "":
		fault = "it closed the connection: it has another cluster.name, or speaks another protocol"
	}
	return fmt.Errorf("%s: %w", fault, err)
}

// report logs an error if the last attempt with the same name or address did not fail.
func (j *joiner) report(ctx context.Context, message, of string, err error) {
	f := failure{message, of}
	if err != nil && !j.failing[f] && ctx.Err() == nil {
		j.options.Log.Warn(message, "address", of, "error", err)
	}
	j.failing[f] = err != nil
}

func (j *joiner) resolve(ctx context.Context, target string) ([]netip.AddrPort, error) {
	host, text, err := net.SplitHostPort(target)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	ips, err := j.options.Resolve(ctx, host)
	var out []netip.AddrPort
	for _, ip := range ips {
		out = append(out, netip.AddrPortFrom(ip.Unmap(), uint16(port)))
	}
	return out, err
}
