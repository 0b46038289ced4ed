package aggregator

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"xdsrelay/config"
	"xdsrelay/internal/expr"
	"xdsrelay/internal/xds"
)

// celRules are the CEL rules of a configuration. The first matching rule gives the key.
type celRules struct{ list []*celRule }

type celRule struct {
	rule
	match *expr.Predicate // nil: always
	types []string        // nil: all
	key   []*expr.String
}

var errEmpty = errors.New("the value is empty")

// compileCEL compiles rules. key is the configuration key of their list.
func compileCEL(key string, rules []config.Rule, places *config.Places) (*celRules, error) {
	set := &celRules{}
	var faults config.Faults
	for i, r := range rules {
		name := fmt.Sprintf("%s[%d]", key, i)
		c := &celRule{rule: rule{name: name, place: places.Of(name)}}
		if !places.Given(key) { // the default rule of a configuration without rules
			c.place = config.Pos{File: "default"}
		}
		if strings.TrimSpace(r.Match) != "" {
			var err error
			if c.match, err = expr.NewMatch(r.Match); err != nil {
				faults = append(faults, ExprFaults(places, name+".match", err)...)
			}
		}
		for j, t := range r.Types {
			url, ok := xds.ParseType(t)
			if !ok {
				faults = append(faults, places.Fault(fmt.Sprintf("%s.types[%d]", name, j),
					"%q is not a resource type; must be a type URL, or one of %s", t, shortTypes()))
			}
			c.types = append(c.types, string(url))
		}
		for j, k := range r.Key {
			e, err := expr.NewKey(k)
			if err != nil {
				faults = append(faults, ExprFaults(places, fmt.Sprintf("%s.key[%d]", name, j), err)...)
			}
			c.key = append(c.key, e)
		}
		c.text = RuleText{Match: cmp.Or(r.Match, "true"), Types: r.Types, Key: r.Key}
		set.list = append(set.list, c)
	}
	if err := faults.Err(); err != nil {
		return nil, err
	}
	return set, nil
}

func shortTypes() string {
	var names []string
	for _, t := range xds.Types() {
		names = append(names, t.Short)
	}
	return strings.Join(names, " ")
}

func (s *celRules) usesType() bool {
	return slices.ContainsFunc(s.list, func(r *celRule) bool {
		return r.types != nil || r.match != nil && r.match.UsesType() || slices.ContainsFunc(r.key, (*expr.String).UsesType)
	})
}

func (s *celRules) usesPeer() bool {
	return slices.ContainsFunc(s.list, func(r *celRule) bool {
		return r.match != nil && r.match.UsesPeer() || slices.ContainsFunc(r.key, (*expr.String).UsesPeer)
	})
}

func (s *celRules) rules() []*rule {
	var out []*rule
	for _, r := range s.list {
		out = append(out, &r.rule)
	}
	return out
}

func (s *celRules) evaluate(in expr.Input) (v evaluation) {
	in.Together(func(in expr.Input) { v = s.firstMatch(in) })
	return v
}

func (s *celRules) firstMatch(in expr.Input) evaluation {
	var v evaluation
	for _, r := range s.list {
		did, err := r.try(in)
		if did != matched {
			v.steps = append(v.steps, step{&r.rule, did, err})
			continue
		}
		elements := make([]string, 0, len(r.key))
		for i := range r.key {
			e, err := r.element(in, i)
			if err != nil {
				// No later rule may take the node: this rule is meant for it, and under another key
				// the node could see other nodes' resources.
				v.failed = true
				v.steps = append(v.steps, step{&r.rule, keyFailed, fmt.Errorf("key[%d]: %w", i, err)})
				return v
			}
			elements = append(elements, e)
		}
		v.elements = elements
		v.steps = append(v.steps, step{&r.rule, matched, nil})
		return v
	}
	return v
}

// try reports whether the rule matches in.
func (r *celRule) try(in expr.Input) (outcome, error) {
	if r.types != nil && !slices.Contains(r.types, in.Type) {
		return otherType, nil
	}
	if r.match == nil {
		return matched, nil
	}
	ok, err := r.match.Eval(in)
	switch {
	case err != nil:
		return matchFailed, err
	case !ok:
		return noMatch, nil
	}
	return matched, nil
}

func (r *celRule) element(in expr.Input, i int) (string, error) {
	e, err := r.key[i].Eval(in)
	if err == nil && e == "" {
		err = errEmpty
	}
	return e, err
}

func (s *celRules) explain(in expr.Input, v evaluation) []RuleResult {
	var out []RuleResult
	for i, r := range s.list {
		res := RuleResult{Rule: r.name, Place: r.place, Types: r.types, Match: "true", Result: notTried.String()}
		if r.match != nil {
			res.Match = r.match.Text()
		}
		if i < len(v.steps) {
			st := v.steps[i]
			res.Result = st.did.String()
			if st.did != otherType && r.match != nil {
				res.Values = shown(r.match.Values(in))
			}
			if st.did == matchFailed {
				res.Error = st.err.Error()
			}
			if st.did == matched || st.did == keyFailed {
				for j, k := range r.key {
					el := Element{Expr: k.Text()}
					if val, err := r.element(in, j); err != nil {
						el.Error = err.Error()
					} else {
						el.Value = val
					}
					res.Key = append(res.Key, el)
					for _, val := range shown(k.Values(in)) {
						if !slices.ContainsFunc(res.Values, func(have expr.Value) bool { return have.Expr == val.Expr }) {
							res.Values = append(res.Values, val)
						}
					}
				}
			}
		}
		out = append(out, res)
	}
	return out
}
