package envoy

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"xdsrelay/internal/xdstest"
)

// difference is one that a scenario expects between an Envoy behind the relay
// and an Envoy that asks the origin directly. Unless random is
// set, the test fails if it does not show.
type difference struct {
	item   string // regular expression of the names of the items that differ
	reason string
	// fewer says that the number behind the relay has to be the smaller one, more
	// that it has to be the larger one.
	fewer, more bool
	// random says that the difference depends on chance and may be missing.
	random bool
}

// repeats are the differences that a SotW snapshot cache causes at Envoys that
// speak SotW or REST. It sends all types again whenever a snapshot has a new
// version. The relay sends only types whose content changed, so its clients keep
// the older version of the others. other is a regular expression of the stat
// prefixes of these types, such as "cluster_manager\\.cds".
func repeats(w way, opts sceneOptions, other string) []difference {
	if w.delta || opts.origin.Cache == xdstest.Linear {
		return nil
	}
	const reason = "the origin repeats unchanged types under a new version, the relay does not"
	counts := difference{item: `stat (` + other + `)\.(update_attempt|update_success|load_success)`, reason: reason, fewer: true}
	if w.rest { // versions are not compared
		return []difference{counts}
	}
	return []difference{counts, {item: `text (` + other + `)\.version_text`, reason: reason}}
}

// sideBySide plays a scenario twice: behind a relay, and directly at an origin
// of the same kind. play sets up the origin's resources, starts one Envoy,
// brings it to its last state, and returns it. Both Envoys have to end with the
// same configuration and the same counters, apart from the explained
// differences.
//
// The items compared are named as in these examples:
//
//	config dynamic_active_clusters web         a resource in /config_dump
//	version dynamic_active_clusters web        its version_info (SotW)
//	text cluster_manager.cds.version_text      the version of a type
//	stat cluster_manager.cds.update_success    a counter or gauge
//	runtime some.key                           a value of /runtime
//
// Ports other than 0 and inline_bytes, such as certificates, are numbered in the
// order in which they appear, because each run has its own. Versions are
// compared where the relay passes them on: not in REST, and in delta only those
// of types.
func sideBySide(t *testing.T, w way, opts sceneOptions, play func(t *testing.T, s *scene) *envoy, explained ...difference) {
	t.Helper()
	for _, d := range explained {
		if d.reason == "" {
			t.Fatalf("no reason for the difference %q", d.item)
		}
	}
	opts.direct = false
	relayed := play(t, newScene(t, w, opts))
	opts.direct = true
	direct := play(t, newScene(t, w, opts))
	compare := func() error {
		behind, err := relayed.items(w)
		if err != nil {
			return err
		}
		alone, err := direct.items(w)
		if err != nil {
			return err
		}
		return unexplained(behind, alone, explained)
	}
	xdstest.Eventually(t, "the same behind the relay as directly", func() error {
		err := compare()
		xdstest.Pause(t, 200*time.Millisecond) // counters may still grow
		if err != nil {
			return err
		}
		return compare()
	})
}

// unexplained compares the items of two Envoys. The error lists differences
// without explanation, and explanations without a difference.
func unexplained(behind, alone map[string]string, explained []difference) error {
	names := make(map[string]bool)
	for name := range behind {
		names[name] = true
	}
	for name := range alone {
		names[name] = true
	}
	var faults []error
	used := make([]bool, len(explained))
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if behind[name] == alone[name] {
			continue
		}
		found := false
		for i, d := range explained {
			if d.explains(name, behind[name], alone[name]) {
				found, used[i] = true, true
			}
		}
		if !found {
			faults = append(faults, fmt.Errorf("%s: behind the relay %q, directly %q", name, behind[name], alone[name]))
		}
	}
	for i, d := range explained {
		if !used[i] && !d.random {
			faults = append(faults, fmt.Errorf("no difference in %q although it is explained: %s", d.item, d.reason))
		}
	}
	return errors.Join(faults...)
}

// explains says whether this is the difference in an item with these values.
func (d difference) explains(name, behind, alone string) bool {
	if !regexp.MustCompile("^(?:" + d.item + ")$").MatchString(name) {
		return false
	}
	if !d.fewer && !d.more {
		return true
	}
	b, errB := strconv.Atoi(behind)
	a, errA := strconv.Atoi(alone)
	return errB == nil && errA == nil && (d.fewer && b < a || d.more && b > a)
}

// comparedStats are the stats of configuration updates.
const comparedStats = `^(cluster_manager\.(cds|cluster_(added|modified|removed|updated)|active_clusters|warming_clusters)|` +
	`listener_manager\.(lds|listener_|total_listeners_(active|warming))|control_plane\.|.*\.srds\.|.*\.rds\.|.*vhds\.|sds\.|` +
	`.*\.sds\.|.*ssl_context_update_by_sds|runtime\.|.*extension_config_discovery\.|` +
	`.*\.(update_(attempt|success|empty|failure|rejected)|init_fetch_timeout|assignment_stale|assignment_timeout_received|version_text)$)`

// ignoredStats change with the clock, differ by design, or say the same as another item.
var ignoredStats = regexp.MustCompile(`(^cluster\.relay\.|_time$|_time_ms$|_duration$|\.version$|^runtime\.override_dir|control_plane\.identifier$)`)

// items returns what sideBySide compares.
func (e *envoy) items(w way) (map[string]string, error) {
	items := make(map[string]string)
	resources, err := e.resources()
	if err != nil {
		return nil, err
	}
	numbers := make(map[string]int)
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		versions := make(map[string]bool)
		tree := normalize(resources[name], numbers, versions)
		text, err := json.Marshal(tree)
		if err != nil {
			return nil, err
		}
		items["config "+name] = string(text)
		if !w.delta && !w.rest && len(versions) > 0 {
			items["version "+name] = strings.Join(slices.Sorted(maps.Keys(versions)), " ")
		}
	}
	stats, err := e.allStats(comparedStats)
	if err != nil {
		return nil, err
	}
	for name, value := range stats {
		text, isText := value.(string)
		switch {
		case ignoredStats.MatchString(name):
		case w.rest && strings.HasSuffix(name, ".update_attempt"): // one for each poll
		case isText && !w.rest:
			items["text "+name] = text
		case !isText:
			items["stat "+name] = fmt.Sprint(value)
		}
	}
	return items, e.runtimeItems(items)
}

// runtimeItems adds the values of /runtime.
func (e *envoy) runtimeItems(items map[string]string) error {
	var page struct {
		Entries map[string]struct {
			Final  string   `json:"final_value"`
			Layers []string `json:"layer_values"`
		} `json:"entries"`
	}
	if err := e.getJSON("/runtime?format=json", &page); err != nil {
		return err
	}
	for name, entry := range page.Entries {
		items["runtime "+name] = fmt.Sprintf("%s of %q", entry.Final, entry.Layers)
	}
	return nil
}

// allStats returns the stats that match a regular expression: counters and
// gauges as float64, texts as string.
func (e *envoy) allStats(filter string) (map[string]any, error) {
	var page struct {
		Stats []struct {
			Name  string `json:"name"`
			Value any    `json:"value"`
		} `json:"stats"`
	}
	if err := e.getJSON("/stats?format=json&filter="+strings.NewReplacer("+", "%2B", "|", "%7C", `\`, "%5C").Replace(filter), &page); err != nil {
		return nil, err
	}
	out := make(map[string]any)
	for _, s := range page.Stats {
		if s.Name != "" { // else histograms
			out[s.Name] = s.Value
		}
	}
	return out, nil
}

// resources returns the entries of /config_dump that came by xDS, as JSON
// trees. Their names are the dump's field and the resource's name.
func (e *envoy) resources() (map[string]any, error) {
	var page struct {
		Configs []map[string]any `json:"configs"`
	}
	if err := e.getJSON("/config_dump?include_eds", &page); err != nil {
		return nil, err
	}
	out := make(map[string]any)
	for _, config := range page.Configs {
		for field, value := range config {
			list, _ := value.([]any)
			if strings.HasPrefix(field, "static_") {
				continue
			}
			for _, entry := range list {
				entry, _ := entry.(map[string]any)
				delete(entry, "draining_state") // goes after the drain time
				if _, named := entry["name"]; named && len(entry) == 1 {
					continue // a listener that only drains
				}
				name := field + " " + nameOfEntry(entry)
				if other, ok := out[name].(map[string]any); ok {
					maps.Copy(entry, other) // the listener in use, and the one that Envoy rejected
				}
				out[name] = entry
			}
		}
	}
	return out, nil
}

// nameOfEntry is the name in an entry of /config_dump, or in the message that
// it holds.
func nameOfEntry(entry map[string]any) string {
	for _, key := range []string{"name", "cluster_name"} {
		if name, _ := entry[key].(string); name != "" {
			return name
		}
	}
	for _, key := range slices.Sorted(maps.Keys(entry)) {
		if inner, _ := entry[key].(map[string]any); inner != nil {
			if name := nameOfEntry(inner); name != "" {
				return name
			}
		}
	}
	return ""
}

// normalize returns a tree without times and versions, and with numbers for
// ports and inline bytes. It collects the versions.
func normalize(tree any, numbers map[string]int, versions map[string]bool) any {
	switch tree := tree.(type) {
	case []any:
		out := make([]any, len(tree))
		for i, v := range tree {
			out[i] = normalize(v, numbers, versions)
		}
		return out
	case map[string]any:
		out := make(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(tree)) {
			switch key {
			case "last_updated", "last_update_attempt":
			case "version_info":
				versions[fmt.Sprint(tree[key])] = true
			case "port_value", "inline_bytes":
				value := fmt.Sprint(tree[key])
				if numbers[value] == 0 && value != "0" {
					numbers[value] = len(numbers) + 1
				}
				out[key] = numbers[value]
			default:
				out[key] = normalize(tree[key], numbers, versions)
			}
		}
		return out
	}
	return tree
}
