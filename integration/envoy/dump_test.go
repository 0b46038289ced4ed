package envoy

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"xdsrelay/internal/xdstest"
)

// dumpFields are the fields of Envoy's /config_dump that hold resources: where
// the resource is in an entry, and its type.
var dumpFields = map[string]struct {
	path []string
	url  string
}{
	"dynamic_active_clusters":      {[]string{"cluster"}, cds},
	"dynamic_endpoint_configs":     {[]string{"endpoint_config"}, eds},
	"dynamic_listeners":            {[]string{"active_state", "listener"}, lds},
	"dynamic_route_configs":        {[]string{"route_config"}, rds},
	"dynamic_scoped_route_configs": {[]string{"scoped_route_configs"}, srds}, // a list
	"dynamic_active_secrets":       {[]string{"secret"}, sds},
	"ecds_filters":                 {[]string{"ecds_filter"}, ecds},
}

// dumped is a resource in /config_dump.
type dumped struct {
	field     string // of the dump
	url, name string
	body      map[string]any // JSON; nil if the resource only warms, or its type is not in dumpFields
}

// dumped returns what this Envoy got by xDS.
func (e *envoy) dumped() ([]dumped, error) {
	entries, err := e.resources()
	if err != nil {
		return nil, err
	}
	var out []dumped
	for key, entry := range entries {
		field, name, _ := strings.Cut(key, " ")
		known := dumpFields[field]
		var at any
		if known.url != "" {
			at = entry
		}
		for _, p := range known.path {
			inner, _ := at.(map[string]any)
			at = inner[p]
		}
		list, isList := at.([]any)
		if !isList {
			list = []any{at}
		}
		for _, body := range list {
			h := dumped{field: field, url: known.url, name: name}
			if h.body, _ = body.(map[string]any); h.body != nil {
				h.name = nameOfEntry(h.body)
			}
			out = append(out, h)
		}
	}
	return out, nil
}

// mustHoldWhatTheRelayHolds fails unless Envoy has the resources that
// `relay dump` prints for the key, with the same content. Secrets are compared
// by name: both sides redact them. Runtime layers are not in Envoy's dump, and
// are compared with /runtime.
func (e *envoy) mustHoldWhatTheRelayHolds(r *xdstest.Relay, key string) {
	e.t.Helper()
	xdstest.Eventually(e.t, e.node+" holds what the relay holds", func() error {
		held, err := relayDump(r, key)
		if err != nil {
			return err
		}
		got, err := e.dump(held)
		if err != nil {
			return err
		}
		names := maps.Clone(held)
		maps.Copy(names, got)
		var faults []error
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if held[name] != got[name] {
				faults = append(faults, fmt.Errorf("%s: the relay has\n%s\nEnvoy has\n%s", name, held[name], got[name]))
			}
		}
		return errors.Join(faults...)
	})
}

// relayDump returns what `relay dump` prints for a key, by type and name.
func relayDump(r *xdstest.Relay, key string) (map[string]string, error) {
	text, code := r.Run("dump", "-o", "json", "--key", key)
	if code != 0 {
		return nil, fmt.Errorf("relay dump exited with %d", code)
	}
	var dump struct {
		Resources []struct {
			Type     string         `json:"type"`
			Name     string         `json:"name"`
			Resource map[string]any `json:"resource"`
		} `json:"items"`
	}
	if err := json.Unmarshal([]byte(text), &dump); err != nil {
		return nil, err
	}
	out := make(map[string]string)
	for _, res := range dump.Resources {
		if res.Resource["@type"] != res.Type {
			return nil, fmt.Errorf("%s %s has the body %v", res.Type, res.Name, res.Resource)
		}
		text, err := comparable(res.Type, res.Resource)
		if err != nil {
			return nil, err
		}
		out[res.Type+" "+res.Name] = text
	}
	return out, nil
}

// dump returns what Envoy holds, in the form of relayDump. A runtime layer
// counts as held if /runtime has its values.
func (e *envoy) dump(relay map[string]string) (map[string]string, error) {
	all, err := e.dumped()
	if err != nil {
		return nil, err
	}
	out := make(map[string]string)
	for _, h := range all {
		if h.body == nil {
			return nil, fmt.Errorf("in /config_dump, %s %s is not in use", h.field, h.name)
		}
		text, err := comparable(h.url, h.body)
		if err != nil {
			return nil, err
		}
		out[h.url+" "+h.name] = text
	}
	for name, text := range relay {
		if !strings.HasPrefix(name, rtds+" ") {
			continue
		}
		same, err := e.hasRuntime(text)
		if err != nil {
			return nil, err
		}
		if same {
			out[name] = text
		}
	}
	return out, nil
}

// hasRuntime says whether /runtime has the values of a runtime resource.
func (e *envoy) hasRuntime(resource string) (bool, error) {
	var want struct {
		Layer map[string]any `json:"layer"`
	}
	if err := json.Unmarshal([]byte(resource), &want); err != nil {
		return false, err
	}
	got := make(map[string]string)
	if err := e.runtimeItems(got); err != nil {
		return false, err
	}
	for key, value := range want.Layer {
		if !strings.HasPrefix(got["runtime "+key], fmt.Sprint(value)+" ") {
			return false, nil
		}
	}
	return len(want.Layer) == len(got), nil
}

// redacted matches what Envoy and the relay print for a private key.
var redacted = regexp.MustCompile(`^map\[inline_(string|bytes):(\[redacted\]|` +
	base64.StdEncoding.EncodeToString([]byte("[redacted]")) + `)\]$`)

// comparable is the JSON of a resource without what Envoy adds to it: in load
// assignments the values by default. Of a secret it is the name.
func comparable(url string, resource map[string]any) (string, error) {
	var tree any = resource
	switch url {
	case sds:
		tree = resource["name"]
		certificate, _ := resource["tls_certificate"].(map[string]any)
		if key := fmt.Sprint(certificate["private_key"]); certificate != nil && !redacted.MatchString(key) {
			return "", fmt.Errorf("the private key of %v is shown as %s", tree, key)
		}
	case eds:
		tree = withoutDefaults(resource)
	}
	text, err := json.MarshalIndent(tree, "", " ")
	return string(text), err
}

// withoutDefaults removes the values that Envoy fills in when it dumps a load
// assignment.
func withoutDefaults(tree any) any {
	switch tree := tree.(type) {
	case []any:
		out := make([]any, len(tree))
		for i, v := range tree {
			out[i] = withoutDefaults(v)
		}
		return out
	case map[string]any:
		out := make(map[string]any)
		for key, v := range tree {
			v = withoutDefaults(v)
			if m, ok := v.(map[string]any); ok && len(m) == 0 {
				continue
			}
			switch fmt.Sprint(key, "=", v) {
			case "health_status=HEALTHY", "load_balancing_weight=1", "load_balancing_weight=0", "overprovisioning_factor=140", "priority=0":
			default:
				out[key] = v
			}
		}
		return out
	}
	return tree
}
