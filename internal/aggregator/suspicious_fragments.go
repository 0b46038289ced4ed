package aggregator

import (
	"fmt"
	"slices"
	"strings"

	"xdsrelay/config"
)

// warn collects the warnings about a valid file, and the texts of its rules.
func (s *fragments) warn(places *config.Places, names, empty []string) {
	if len(names) > 0 {
		s.warnings = append(s.warnings, places.Fault(names[0],
			"adds nothing to the key (%d in this file): the requested names are the client's subscription", len(names)))
	}
	for _, key := range empty {
		s.warnings = append(s.warnings, places.Fault(key, "is empty and adds nothing to the key"))
	}
	for i, f := range s.list {
		if a, b, ok := overlap(f); ok {
			s.warnings = append(s.warnings, config.Fault{Pos: f[b].place, Key: fmt.Sprintf("fragments[%d]", i), Reason: fmt.Sprintf(
				"rules[%d] and rules[%d] can both match a node; all matching rules add to the key, as in xds-relay", a, b)})
		}
		for _, r := range f {
			r.text = RuleText{Match: r.match.String(), Key: []string{r.result.String()}}
			if c := necessary(r.match); c.types != nil && !slices.ContainsFunc(c.types, func(t string) bool { return !strings.Contains(t, "/envoy.api.v2.") }) {
				s.warnings = append(s.warnings, config.Fault{Pos: r.place, Key: r.name,
					Reason: "has only types of the xDS v2 API, which no client requests; use the v3 types"})
			}
		}
	}
	// Err sorts.
	_ = s.warnings.Err()
}

// overlap returns the first two rules that may both match a node. If it cannot decide, it returns
// them, because that only causes a warning.
func overlap(rules []*fragmentRule) (a, b int, ok bool) {
	conds := make([]conditions, len(rules))
	for i, r := range rules {
		conds[i] = necessary(r.match)
	}
	for b := range rules {
		for a := range b {
			if !conds[a].excludes(conds[b]) {
				return a, b, true
			}
		}
	}
	return 0, 0, false
}

// conditions are necessary for a predicate to match.
type conditions struct {
	types    []string          // the type is one of these; nil: any
	notTypes []string          // the type is none of these
	exact    map[string]string // the value of each field, as text
	holds    map[string]bool   // the result of each predicate, by its text
}

func necessary(p predicate) conditions {
	c := conditions{exact: map[string]string{}, holds: map[string]bool{}}
	c.require(p, true)
	return c
}

// require adds the conditions under which p's result is want.
func (c *conditions) require(p predicate, want bool) {
	c.holds[p.String()] = want
	switch p := p.(type) {
	case notMatch:
		c.require(p.predicate, !want)
	case andMatch:
		if want {
			for _, q := range p {
				c.require(q, true)
			}
		}
	case orMatch:
		if !want {
			for _, q := range p {
				c.require(q, false)
			}
			return
		}
		// Each alternative may need a type; then the type is one of all these.
		var types []string
		for _, q := range p {
			n := necessary(q)
			if n.types == nil {
				return
			}
			types = append(types, n.types...)
		}
		c.onlyTypes(types)
	case typeMatch:
		if want {
			c.onlyTypes(p)
		} else {
			c.notTypes = append(c.notTypes, p...)
		}
	case fieldMatch:
		if want && p.regex == nil {
			c.exact[p.name] = p.exact
		}
	case metadataMatch:
		switch {
		case want && p.truth != nil:
			c.exact[p.name] = fmt.Sprint(*p.truth)
		case want && p.regex == nil:
			c.exact[p.name] = fmt.Sprintf("%q", p.exact)
		}
	}
}

func (c *conditions) onlyTypes(types []string) {
	if c.types == nil {
		c.types = append([]string{}, types...)
		return
	}
	c.types = slices.DeleteFunc(c.types, func(t string) bool { return !slices.Contains(types, t) })
}

// excludes reports whether c and o exclude each other.
func (c conditions) excludes(o conditions) bool {
	if c.types != nil && o.types != nil && !slices.ContainsFunc(c.types, func(t string) bool { return slices.Contains(o.types, t) }) {
		return true
	}
	if within(c.types, o.notTypes) || within(o.types, c.notTypes) {
		return true
	}
	for f, v := range c.exact {
		if w, ok := o.exact[f]; ok && v != w {
			return true
		}
	}
	for p, v := range c.holds {
		if w, ok := o.holds[p]; ok && v != w {
			return true
		}
	}
	return false
}

// within reports whether types is not nil and all its elements are in among.
func within(types, among []string) bool {
	return types != nil && !slices.ContainsFunc(types, func(t string) bool { return !slices.Contains(among, t) })
}
