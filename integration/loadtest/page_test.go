//go:build linux

package main

import (
	"context"
	"testing"
	"time"
)

func TestStudyPage(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	o := small(t)
	o.relay, o.rounds = relay(t), 2
	o.load = load{Clients: 20, Bytes: 2000, Keys: 4}
	s, err := studyPage(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{"no page", "a page open", "a key's page read"} {
		for _, column := range s.Columns {
			if v := s.value(row, column); v == nil || v.Median <= 0 {
				t.Errorf("%s, %s: %v", row, column, v)
			}
		}
	}
	if s.value("what a page open costs", "elapsed ms") == nil || s.value("what a key's page read costs", "elapsed ms") == nil {
		t.Error("nothing is compared")
	}
}
