//go:build linux

package main

import (
	"fmt"
	"reflect"
	"testing"
	"time"
)

var some24 = scale{relays: 2, origins: 2, clients: 24, faults: 40, longest: 4 * time.Second}

// A seed and a round determine the faults and their order.
func TestSeedGivesTheSamePlan(t *testing.T) {
	if !reflect.DeepEqual(plan(7, 3, some24), plan(7, 3, some24)) {
		t.Error("the same seed and round have two plans")
	}
	if reflect.DeepEqual(plan(7, 3, some24), plan(8, 3, some24)) || reflect.DeepEqual(plan(7, 3, some24), plan(7, 4, some24)) {
		t.Error("other seeds and rounds have the same plan")
	}
}

// Each lasting fault ends. Nothing has two lasting faults at a time. Each act occurs.
func TestPlansAreSound(t *testing.T) {
	done := make(map[string]bool)
	for seed := range uint64(50) {
		open := make(map[int]step)
		on := make(map[string]int)
		last := time.Duration(0)
		for _, st := range plan(seed, 1, some24) {
			if st.at < last {
				t.Fatalf("seed %d: %s is before its predecessor", seed, st)
			}
			last = st.at
			done[fmt.Sprint(st.where, st.act)] = true
			of := fmt.Sprint(st.where, st.a, "/", st.b)
			if st.act == dawn {
				if open[st.fault].act != blackout {
					t.Errorf("seed %d: %s without a blackout", seed, st)
				}
				continue
			}
			switch lasts := lasting(st); {
			case !lasts:
			case st.end:
				if _, ok := open[st.fault]; !ok {
					t.Errorf("seed %d: %s without a beginning", seed, st)
				}
				delete(open, st.fault)
				on[of]--
			default:
				open[st.fault] = st
				if on[of]++; on[of] > 1 {
					t.Errorf("seed %d: %s beside another fault", seed, st)
				}
			}
		}
		for _, st := range open {
			t.Errorf("seed %d: %s has no end", seed, st)
		}
	}
	for _, m := range mix {
		if !done[fmt.Sprint(m.where, m.act)] {
			t.Errorf("%s is never done", m.act)
		}
	}
}

func lasting(st step) bool {
	for _, m := range mix {
		if m.act == st.act && m.where == st.where {
			return m.lasts
		}
	}
	return false
}
