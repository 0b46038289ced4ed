package rulestatus

import (
	"fmt"
	"strings"
	"time"

	"xdsrelay/internal/admin/keystatus"
	"xdsrelay/internal/admin/overview"
	"xdsrelay/internal/aggregator"
)

// KeyProblems reports keys whose clients differ in user agent, and keys in use that different rules gave.
func KeyProblems(keys []keystatus.Key, shared []aggregator.SharedKey, say func(overview.Problem)) {
	used := make(map[string]bool, len(keys))
	n := 0
	var mixed *keystatus.Key // the first one
	for i := range keys {
		used[keys[i].Key] = true
		if keys[i].Mixed == nil {
			continue
		}
		if n++; mixed == nil {
			mixed = &keys[i]
		}
	}
	if n > 0 {
		say(overview.Problem{Severity: overview.Warning, Since: mixed.Mixed.Since,
			Text:   fmt.Sprintf("%s nodes of different kinds, for example key %s: %s and %s", haveKeys(n), mixed.Key, mixed.Mixed.Names[0], mixed.Mixed.Names[1]),
			Key:    mixed.Key,
			Impact: "Clients of one kind may get the resources of the other kind, or none. The origin may see the node of a client that has left.",
			Next:   "Add the kind of the node to the key, as docs/rules.md says in \"How to choose keys\"."})
	}
	n = 0
	var first *aggregator.SharedKey
	for i := range shared {
		if !used[shared[i].Key.String()] {
			continue
		}
		if n++; first == nil {
			first = &shared[i]
		}
	}
	if n > 0 {
		say(overview.Problem{Severity: overview.Warning, Since: first.Since,
			Text:   fmt.Sprintf("%s nodes of different rules, for example key %s: %s and %s", haveKeys(n), first.Key, first.Rules[0], first.Rules[1]),
			Key:    first.Key.String(),
			Impact: "Nodes that the rules tell apart share a stream, and get the resources of one of them.",
			Next:   "Begin the keys of both rules with different constants. If the nodes are meant to share, write the same key expressions in both rules."})
	}
}

func haveKeys(n int) string {
	if n == 1 {
		return "1 key has"
	}
	return fmt.Sprintf("%d keys have", n)
}

// FailingRules reports rules whose match fails for some nodes.
func FailingRules(rules []aggregator.Stat, now time.Time, say func(overview.Problem)) {
	var failing []string
	for _, r := range rules {
		if r.Failing(now) {
			failing = append(failing, fmt.Sprintf("%s (%s)", r.Rule, r.Place))
		}
	}
	if len(failing) > 0 {
		say(overview.Problem{Severity: overview.Warning, Text: "the match of these rules fails for some nodes: " + strings.Join(failing, ", "),
			Impact: "The rule does not match these nodes. They may get another key, and so other resources.",
			Next:   "Look at relay rules for a node and its error. Test the field, and each one above it, with has() in the rule."})
	}
}
