package aggregator

import (
	"errors"
	"fmt"
	"regexp"
	"slices"

	"xdsrelay/config"
	"xdsrelay/internal/expr"
)

// fragments are the rules of an xds-relay file. Each fragment gives an element of the key, from all
// its rules that match.
type fragments struct {
	list     [][]*fragmentRule
	warnings config.Faults
}

type fragmentRule struct {
	rule
	match  predicate
	result result
}

var errAddsNothing = errors.New("the matching rules add nothing to the key")

func (s *fragments) rules() []*rule {
	var out []*rule
	for _, f := range s.list {
		for _, r := range f {
			out = append(out, &r.rule)
		}
	}
	return out
}

func (s *fragments) usesType() bool {
	uses := false
	for _, f := range s.list {
		for _, r := range f {
			r.match.reads(&expr.Input{}, func(v expr.Value) { uses = uses || v.Expr == "type" })
		}
	}
	return uses
}

func (s *fragments) evaluate(in expr.Input) evaluation {
	var v evaluation
	var elements []string
	used := 0
	var last *fragmentRule
	for _, f := range s.list {
		var parts []string
		for _, r := range f {
			ok, err := r.match.match(&in)
			switch {
			case err != nil:
				v.steps = append(v.steps, step{&r.rule, matchFailed, err})
				continue
			case !ok:
				v.steps = append(v.steps, step{&r.rule, noMatch, nil})
				continue
			}
			last = r
			part, err := r.result.value(&in)
			if err != nil {
				v.failed = true
				v.steps = append(v.steps, step{&r.rule, keyFailed, err})
				return v
			}
			v.steps = append(v.steps, step{&r.rule, matched, nil})
			if part != "" {
				parts = append(parts, part)
			}
		}
		switch len(parts) {
		case 0:
			elements = append(elements, nothing)
			continue
		case 1:
			elements = append(elements, parts[0])
		default:
			elements = append(elements, tuple(tupleAll, parts))
		}
		used = len(elements)
	}
	switch {
	case used > 0:
		v.elements = elements[:used]
	case last != nil:
		// All tenants would share a key without elements.
		v.failed = true
		for i := range v.steps {
			if v.steps[i].rule == &last.rule {
				v.steps[i].did, v.steps[i].err = keyFailed, errAddsNothing
			}
		}
	}
	return v
}

func (s *fragments) explain(in expr.Input, v evaluation) []RuleResult {
	var out []RuleResult
	i := 0
	for _, f := range s.list {
		for _, r := range f {
			res := RuleResult{Rule: r.name, Place: r.place, Match: r.match.String(), Result: notTried.String()}
			if i < len(v.steps) {
				st := v.steps[i]
				res.Result = st.did.String()
				add := func(x expr.Value) {
					if !slices.ContainsFunc(res.Values, func(have expr.Value) bool { return have.Expr == x.Expr }) {
						res.Values = append(res.Values, shown([]expr.Value{x})...)
					}
				}
				r.match.reads(&in, add)
				switch st.did {
				case matchFailed:
					res.Error = st.err.Error()
				case matched, keyFailed:
					r.result.reads(&in, add)
					el := Element{Expr: r.result.String()}
					if st.err != nil {
						el.Error = st.err.Error()
					} else if val, err := r.result.value(&in); err == nil {
						el.Value = val // the error of another one is the step's
					}
					res.Key = append(res.Key, el)
				}
			}
			i++
			out = append(out, res)
		}
	}
	return out
}

func parseFragments(file string, src []byte) (*fragments, error) {
	var f keyerFile
	places, err := config.DecodeProto(file, src, &f)
	if err != nil {
		return nil, err
	}
	c := fragmentCompiler{places: places}
	set := c.file(&f)
	if err := c.faults.Err(); err != nil {
		return nil, err
	}
	set.warn(places, c.names, c.empty)
	return set, nil
}

// fragmentCompiler checks a file against its schema and collects the faults.
type fragmentCompiler struct {
	places *config.Places
	faults config.Faults
	names  []string // keys of resource_names_fragments
	empty  []string // keys of empty string_fragments
}

func (c *fragmentCompiler) fault(key, format string, args ...any) {
	c.faults = append(c.faults, c.places.Fault(key, format, args...))
}

// one checks that exactly one member of a oneof is given.
func (c *fragmentCompiler) one(key string, members map[string]bool) {
	var names, given []string
	for n, ok := range members {
		names = append(names, n)
		if ok {
			given = append(given, n)
		}
	}
	slices.Sort(names)
	slices.Sort(given)
	if len(given) != 1 {
		c.fault(key, "must have exactly one of %v, but has %v", names, given)
	}
}

func (c *fragmentCompiler) atLeast(key string, got, least int) {
	if got < least {
		c.fault(key, "must have at least %d elements, but has %d", least, got)
	}
}

func (c *fragmentCompiler) file(f *keyerFile) *fragments {
	c.atLeast("fragments", len(f.Fragments), 1)
	set := &fragments{}
	for i, fr := range f.Fragments {
		key := fmt.Sprintf("fragments[%d].rules", i)
		c.atLeast(key, len(fr.Rules), 1)
		var rules []*fragmentRule
		for j, r := range fr.Rules {
			name := fmt.Sprintf("%s[%d]", key, j)
			rules = append(rules, &fragmentRule{
				rule:   rule{name: name, place: c.places.Of(name)},
				match:  c.match(name+".match", r.Match),
				result: c.result(name+".result", r.Result),
			})
		}
		set.list = append(set.list, rules)
	}
	return set
}

func (c *fragmentCompiler) match(key string, m *matchFile) predicate {
	if m == nil {
		c.fault(key, "is missing")
		return nil
	}
	c.one(key, map[string]bool{
		"and_match": m.And != nil, "or_match": m.Or != nil, "not_match": m.Not != nil, "any_match": m.Any != nil,
		"request_type_match": m.Type != nil, "request_node_match": m.Node != nil,
	})
	switch {
	case m.And != nil:
		return andMatch(c.matches(key+".and_match.rules", m.And.Rules))
	case m.Or != nil:
		return orMatch(c.matches(key+".or_match.rules", m.Or.Rules))
	case m.Not != nil:
		return notMatch{c.match(key+".not_match", m.Not)}
	case m.Any != nil:
		if !*m.Any {
			c.fault(key+".any_match", "must be true")
		}
		return anyMatch{}
	case m.Type != nil:
		c.atLeast(key+".request_type_match.types", len(m.Type.Types), 1)
		return typeMatch(m.Type.Types)
	case m.Node != nil:
		return c.node(key+".request_node_match", m.Node)
	}
	return nil
}

func (c *fragmentCompiler) matches(key string, list []matchFile) []predicate {
	c.atLeast(key, len(list), 2)
	var out []predicate
	for i := range list {
		out = append(out, c.match(fmt.Sprintf("%s[%d]", key, i), &list[i]))
	}
	return out
}

func (c *fragmentCompiler) node(key string, m *nodeMatchFile) predicate {
	old := m.Field != nil || m.Exact != nil || m.Regex != nil
	c.one(key, map[string]bool{
		"id_match": m.ID != nil, "cluster_match": m.Cluster != nil, "locality_match": m.Locality != nil,
		"node_metadata_match": m.Metadata != nil, "field": old,
	})
	switch {
	case m.ID != nil:
		return fieldMatch{fieldID, c.pattern(key+".id_match", m.ID)}
	case m.Cluster != nil:
		return fieldMatch{fieldCluster, c.pattern(key+".cluster_match", m.Cluster)}
	case m.Locality != nil:
		return c.locality(key+".locality_match", m.Locality)
	case m.Metadata != nil:
		return c.metadata(key+".node_metadata_match", m.Metadata)
	case old:
		return fieldMatch{oldField(m.Field), c.pattern(key, &stringMatchFile{Exact: m.Exact, Regex: m.Regex})}
	}
	return nil
}

// oldField returns the enum's field. If it is left out, it is the enum's zero value.
func oldField(f *nodeField) field {
	if f == nil {
		return fieldID
	}
	return nodeFields[*f]
}

// locality matches nodes that match all given parts. Without parts it matches every node.
func (c *fragmentCompiler) locality(key string, m *localityMatchFile) predicate {
	all := andMatch{}
	for _, p := range []struct {
		name  string
		field field
		match *stringMatchFile
	}{{"region", fieldRegion, m.Region}, {"zone", fieldZone, m.Zone}, {"sub_zone", fieldSubZone, m.SubZone}} {
		if p.match != nil {
			all = append(all, fieldMatch{p.field, c.pattern(key+"."+p.name, p.match)})
		}
	}
	return all
}

func (c *fragmentCompiler) metadata(key string, m *metadataMatchFile) predicate {
	out := metadataMatch{field: c.path(key+".path", m.Path)}
	if m.Match == nil {
		c.fault(key+".match", "is missing")
		return out
	}
	c.one(key+".match", map[string]bool{"string_match": m.Match.String != nil, "bool_match": m.Match.Bool != nil})
	switch {
	case m.Match.String != nil:
		out.pattern = c.pattern(key+".match.string_match", m.Match.String)
	case m.Match.Bool != nil:
		out.truth = &m.Match.Bool.Value
	}
	return out
}

func (c *fragmentCompiler) path(key string, segments []segmentFile) field {
	c.atLeast(key, len(segments), 1)
	var path []string
	for i, s := range segments {
		if s.Key == "" {
			c.fault(fmt.Sprintf("%s[%d].key", key, i), "is missing")
		}
		path = append(path, s.Key)
	}
	return metadataField(path)
}

func (c *fragmentCompiler) pattern(key string, m *stringMatchFile) pattern {
	c.one(key, map[string]bool{"exact_match": m.Exact != nil, "regex_match": m.Regex != nil})
	switch {
	case m.Exact != nil:
		return pattern{exact: *m.Exact}
	case m.Regex != nil && *m.Regex != "":
		return pattern{regex: c.regex(key+".regex_match", *m.Regex)}
	}
	return pattern{} // matches nothing, like an empty exact match
}

func (c *fragmentCompiler) regex(key, text string) *regexp.Regexp {
	re, err := regexp.Compile(text)
	if err != nil {
		c.fault(key, "%v", err)
	}
	return re
}

func (c *fragmentCompiler) result(key string, r *resultFile) result {
	if r == nil {
		c.fault(key, "is missing")
		return nil
	}
	c.one(key, map[string]bool{
		"and_result": r.And != nil, "request_node_fragment": r.Node != nil,
		"resource_names_fragment": r.Names != nil, "string_fragment": r.String != nil,
	})
	switch {
	case r.And != nil:
		sub := key + ".and_result.result_predicates"
		c.atLeast(sub, len(r.And.Results), 2)
		var all andResult
		for i := range r.And.Results {
			all = append(all, c.result(fmt.Sprintf("%s[%d]", sub, i), &r.And.Results[i]))
		}
		return all
	case r.Node != nil:
		return c.nodeResult(key+".request_node_fragment", r.Node)
	case r.Names != nil:
		sub := key + ".resource_names_fragment"
		if r.Names.Element < 0 {
			c.fault(sub+".element", "must not be negative, but is %d", r.Names.Element)
		}
		c.action(sub+".action", r.Names.Action)
		c.names = append(c.names, sub)
		return namesResult{}
	case r.String != nil:
		if *r.String == "" {
			c.empty = append(c.empty, key+".string_fragment")
		}
		return stringResult(*r.String)
	}
	return nil
}

func (c *fragmentCompiler) nodeResult(key string, r *nodeResultFile) result {
	old := r.Field != nil || r.Action != nil
	c.one(key, map[string]bool{
		"id_action": r.ID != nil, "cluster_action": r.Cluster != nil, "locality_action": r.Locality != nil,
		"node_metadata_action": r.Metadata != nil, "field": old,
	})
	switch {
	case r.ID != nil:
		return fieldResult{fieldID, c.action(key+".id_action", r.ID)}
	case r.Cluster != nil:
		return fieldResult{fieldCluster, c.action(key+".cluster_action", r.Cluster)}
	case r.Locality != nil:
		return c.localityResult(key+".locality_action", r.Locality)
	case r.Metadata != nil:
		sub := key + ".node_metadata_action"
		return fieldResult{c.path(sub+".path", r.Metadata.Path), c.action(sub+".action", r.Metadata.Action)}
	case old:
		return fieldResult{oldField(r.Field), c.action(key+".action", r.Action)}
	}
	return nil
}

func (c *fragmentCompiler) localityResult(key string, r *localityActionFile) result {
	var out localityResult
	for i, p := range []struct {
		name   string
		field  field
		action *actionFile
	}{{"region_action", fieldRegion, r.Region}, {"zone_action", fieldZone, r.Zone}, {"subzone_action", fieldSubZone, r.SubZone}} {
		if p.action != nil {
			out[i] = &fieldResult{p.field, c.action(key+"."+p.name, p.action)}
		}
	}
	if out == (localityResult{}) {
		c.fault(key, "must have at least one of region_action, zone_action, subzone_action; the relay would refuse every node")
	}
	return out
}

func (c *fragmentCompiler) action(key string, a *actionFile) action {
	if a == nil {
		c.fault(key, "is missing")
		return action{}
	}
	c.one(key, map[string]bool{"exact": a.Exact != nil, "regex_action": a.Regex != nil})
	switch {
	case a.Exact != nil && !*a.Exact:
		c.fault(key+".exact", "must be true")
	case a.Regex != nil && a.Regex.Pattern == "":
		c.fault(key+".regex_action.pattern", "is missing")
	case a.Regex != nil:
		return action{regex: c.regex(key+".regex_action.pattern", a.Regex.Pattern), replace: a.Regex.Replace}
	}
	return action{}
}
