package main

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"
)

//go:embed rules.txt
var rulesText string

// rule is one rule of the protocol.
type rule struct {
	id      string
	section string
	text    string
	where   []place // in which it can be observed
}

// place is a combination of variants, and the clients' kind of stream.
type place struct {
	up, down string // "sotw" or "delta"
	service  string // "ads" or "per-type"
}

// places are all of them, in the page's order.
func places() []place {
	var out []place
	for _, up := range []string{"sotw", "delta"} {
		for _, down := range []string{"sotw", "delta"} {
			for _, service := range []string{"ads", "per-type"} {
				out = append(out, place{up, down, service})
			}
		}
	}
	return out
}

func (p place) String() string { return p.up + "-" + p.down + "/" + p.service }

// leave are the words of rules.txt that leave some places.
var leave = map[string]func(place) bool{
	"all":        func(place) bool { return true },
	"none":       func(place) bool { return false },
	"down=sotw":  func(p place) bool { return p.down == "sotw" },
	"down=delta": func(p place) bool { return p.down == "delta" },
	"up=sotw":    func(p place) bool { return p.up == "sotw" },
	"up=delta":   func(p place) bool { return p.up == "delta" },
	"ads":        func(p place) bool { return p.service == "ads" },
	"per-type":   func(p place) bool { return p.service == "per-type" },
}

var ruleLine = regexp.MustCompile(`^(P[0-9]+)\s+(\S+)\s+(\S.*)$`)

// parseRules reads rules.txt.
func parseRules(text string) ([]rule, error) {
	var out []rule
	section := ""
	seen := make(map[string]bool)
	for i, line := range strings.Split(text, "\n") {
		fail := func(format string, args ...any) ([]rule, error) {
			return nil, fmt.Errorf("rules.txt:%d: %s", i+1, fmt.Sprintf(format, args...))
		}
		switch {
		case strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#"):
			continue
		case strings.HasPrefix(line, "= "):
			section = line[2:]
			continue
		}
		m := ruleLine.FindStringSubmatch(line)
		if m == nil {
			return fail("no rule: wants an id, where, and what it asks")
		}
		r := rule{id: m[1], section: section, text: m[3]}
		if seen[r.id] {
			return fail("%s is there twice", r.id)
		}
		seen[r.id] = true
	place:
		for _, p := range places() {
			for _, word := range strings.Split(m[2], ",") {
				keep, ok := leave[word]
				if !ok {
					return fail("%q says not where", word)
				}
				if !keep(p) {
					continue place
				}
			}
			r.where = append(r.where, p)
		}
		out = append(out, r)
	}
	return out, nil
}
