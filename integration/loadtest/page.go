//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"sync"
)

// studyPage measures the cost of an open admin page. Rounds without a page, with the fleet's view
// and with a key's view alternate, on the same relay with the same clients. The key's view is read
// again in each of its rounds; a page reads it every two seconds at most.
func studyPage(ctx context.Context, o *options) (*study, error) {
	s := &study{
		What:    fmt.Sprintf("%s, with the admin page open and without, by turns; %d rounds each", o.load, o.rounds),
		Columns: []string{"from trigger ms", "elapsed ms", "CPU ms"},
	}
	var all []*contender
	defer stopAll(&all)
	for _, e := range o.among(relayAlone...) {
		c, err := e.begin(ctx, o)
		if c != nil {
			all = append(all, c)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.name, err)
		}
		if err := c.watched(ctx, o, s); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return s, nil
}

// view is a view of the page.
type view int

const (
	noPage view = iota
	fleetView
	keyView
	views
)

func (v view) String() string {
	return [...]string{"no page", "a page open", "a key's page read"}[v]
}

// watched runs the rounds. The order within a turn changes.
func (c *contender) watched(ctx context.Context, o *options, s *study) error {
	key, err := c.aKey(ctx)
	if err != nil {
		return err
	}
	var got [views]struct{ latency, elapsed, cpu []float64 }
	events := 0
	for r := range warmups + o.rounds {
		o.log("round %d of %d", r-warmups+1, o.rounds)
		for i := range views {
			shows := (i + view(r)) % views
			one, seen, err := c.roundWith(ctx, shows, key)
			if err != nil {
				return err
			}
			events += seen
			if r < warmups {
				continue
			}
			at := &got[shows]
			at.latency = append(at.latency, one.Latency.Seconds()*1e3)
			at.elapsed = append(at.elapsed, one.Elapsed.Seconds()*1e3)
			at.cpu = append(at.cpu, one.CPU.Seconds()*1e3)
		}
	}
	if events == 0 {
		return fmt.Errorf("the page received no event")
	}
	for v := range views {
		s.add(v.String(), many(got[v].latency), many(got[v].elapsed), many(got[v].cpu))
	}
	without := &got[noPage]
	for v := fleetView; v < views; v++ {
		with := &got[v]
		s.add("what "+v.String()+" costs", differences(with.latency, without.latency), differences(with.elapsed, without.elapsed), differences(with.cpu, without.cpu))
	}
	return nil
}

// aKey returns the name of a key that has clients.
func (c *contender) aKey(ctx context.Context) (string, error) {
	body, err := c.admin.get(ctx, "/keys")
	if err != nil {
		return "", err
	}
	defer body.Close()
	var all struct {
		Items []struct {
			Key     string `json:"key"`
			Clients int    `json:"clients"`
		} `json:"items"`
	}
	if err := json.NewDecoder(body).Decode(&all); err != nil {
		return "", err
	}
	for _, k := range all.Items {
		if k.Clients > 0 {
			return k.Key, nil
		}
	}
	return "", errors.New("no key has a client")
}

// roundWith runs a round, with or without a page that has received its first event. It returns the
// number of events.
func (c *contender) roundWith(ctx context.Context, shows view, key string) (sample, int, error) {
	if shows == noPage {
		s, err := c.round(ctx)
		return s, 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := c.admin.get(ctx, "/events")
	if err != nil {
		return sample{}, 0, err
	}
	told := make(chan struct{})
	n := 0
	var reading sync.WaitGroup
	reading.Go(func() {
		first := sync.OnceFunc(func() { close(told) })
		defer first()
		lines := bufio.NewReader(events)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			if strings.HasPrefix(line, "data: ") {
				n++
				first()
			}
		}
	})
	<-told
	var unread error
	if shows == keyView {
		reading.Go(func() { unread = c.readKey(ctx, key) })
	}
	s, err := c.round(ctx)
	cancel()
	reading.Wait()
	_ = events.Close()                                                       // the stream is no longer read
	if err == nil && unread != nil && !errors.Is(unread, context.Canceled) { // otherwise the round ended first
		err = unread
	}
	return s, n, err
}

// readKey reads the data of the view of a key.
func (c *contender) readKey(ctx context.Context, key string) error {
	for _, path := range []string{"/keys/" + url.PathEscape(key), "/clients?limit=25&key=" + url.QueryEscape(key)} {
		body, err := c.admin.get(ctx, path)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, body)
		_ = body.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
