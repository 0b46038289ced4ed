//go:build linux

package main

import (
	"context"
	"fmt"
	"strings"
)

// loadCase is a load that is measured for docs/performance.
type loadCase struct {
	name string
	load load
	tls  bool
	// times multiplies -rounds; 0: once. Cases with goals need more precise results.
	times int
	// study measures the case; nil: rounds of changes (bench.go).
	study func(ctx context.Context, o *options) (*study, error)
	// by are the contenders in a study.
	by []string
}

const goalTimes = 3

// The contenders in studies.
var (
	relayAlone = []string{nameRelay}
	grpcs      = []string{nameBare, nameRelay}
	answering  = []string{nameBare, nameRelay, nameSnapshot, nameLinear}
)

var loadCases = []loadCase{
	{name: "sotw-1k", load: load{Clients: 2000, Bytes: 1000}, times: goalTimes},
	{name: "sotw-10k", load: load{Clients: 2000, Bytes: 10_000}, times: goalTimes},
	{name: "sotw-100k", load: load{Clients: 2000, Bytes: 100_000}, times: goalTimes},
	{name: "sotw-1m", load: load{Clients: 500, Bytes: 1_000_000}},
	{name: "delta-100", load: load{Clients: 2000, Bytes: 1000, Delta: true, Clusters: 100}},
	{name: "delta-10k", load: load{Clients: 500, Bytes: 500, Delta: true, Clusters: 10_000}},
	{name: "tls-10k", load: load{Clients: 2000, Bytes: 10_000}, tls: true},
	{name: "tls-100k", load: load{Clients: 2000, Bytes: 100_000}, tls: true},
	{name: "allocs", load: load{Clients: 2000, Bytes: 10_000}, study: studyAllocs, by: grpcs},
	{name: "eds-alike", load: eds(1000)},
	{name: "eds-apart", load: eds(1000).apart()},
	{name: "eds-delta-alike", load: eds(1000).delta()},
	{name: "eds-delta-apart", load: eds(1000).apart().delta()},
	{name: "eds-unwanted", load: eds(10_000).delta(), study: studyUnwanted, by: grpcs},
	{name: "keys-1", load: load{Clients: 2000, Bytes: 10_000, Keys: 1}},
	{name: "keys-10", load: load{Clients: 2000, Bytes: 10_000, Keys: 10}},
	{name: "keys-1000", load: load{Clients: 2000, Bytes: 10_000, Keys: 1000}},
	{name: "page", load: load{Clients: 2000, Bytes: 100_000}, times: goalTimes, study: studyPage, by: relayAlone},
	{name: "page-20k", load: load{Clients: 20_000, Bytes: 1000, Keys: 100, Streams: 100}, study: studyPage, by: relayAlone},
	{name: "scale", load: scale(10_000), study: studyScale, by: relayAlone},
	{name: "scale-own", load: ownScale(10_000), study: studyScale, by: relayAlone},
	{name: "return-1", load: scale(1), study: studyReturn, by: relayAlone},
	{name: "return", load: scale(10_000), study: studyReturn, by: relayAlone},
	{name: "slow", load: load{Clients: 1800, Slow: 200, Bytes: 100_000}, study: studySlow, by: relayAlone},
	{name: "slow-100k", load: load{Clients: 1000, Slow: 1000, Bytes: 100_000, EveryMS: 200, Seconds: 60}, study: studySlow, by: relayAlone},
	{name: "slow-1m", load: load{Clients: 1000, Slow: 1000, Bytes: 1_000_000, EveryMS: 2000, Seconds: 40}, study: studySlow, by: relayAlone},
	{name: "arrive", load: load{Clients: 5000, Bytes: 100_000}, study: studyArrive, by: answering},
	{name: "arrive-1k", load: load{Clients: 5000, Bytes: 1000}, study: studyArrive, by: answering},
	{name: "idle-10", load: idle(10), study: studyIdle, by: grpcs},
	{name: "idle-10k", load: idle(10_000), study: studyIdle, by: grpcs},
	{name: "idle-tls-10", load: idle(10), tls: true, study: studyIdle, by: grpcs},
	{name: "idle-tls-10k", load: idle(10_000), tls: true, study: studyIdle, by: grpcs},
}

func caseNames() string {
	var out []string
	for _, c := range loadCases {
		out = append(out, c.name)
	}
	return strings.Join(out, ",")
}

// pickCases returns the cases of a list; all of them for "all".
func pickCases(list string) ([]loadCase, error) {
	if list == "all" {
		return loadCases, nil
	}
	var out []loadCase
next:
	for name := range strings.SplitSeq(list, ",") {
		for _, c := range loadCases {
			if c.name == strings.TrimSpace(name) {
				out = append(out, c)
				continue next
			}
		}
		return nil, fmt.Errorf("-case: there is no %q; there are %s, and all", name, caseNames())
	}
	return out, nil
}
