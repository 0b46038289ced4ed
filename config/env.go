package config

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"xdsrelay/internal/spelling"
)

// EnvPrefix begins the names of environment variables: RELAY_UPSTREAM_VARIANT sets
// upstream.variant.
const EnvPrefix = "RELAY_"

// kubernetes matches variables that Kubernetes sets for each service: RELAY_PORT for a service
// named relay, RELAY_ADMIN_SERVICE_HOST for relay-admin.
var kubernetes = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_PROTO|_PORT|_ADDR)?)?)$`)

// UnknownEnv returns the environment variables with EnvPrefix that belong to no key. They are
// warnings and not faults: the user of a container may not control all its variables.
func UnknownEnv() (out Faults) {
	known := map[string]int{}
	for _, l := range leaves() {
		known[EnvName(l.key)] = 0
	}
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if _, ok := known[name]; ok || !strings.HasPrefix(name, EnvPrefix) || kubernetes.MatchString(name) {
			continue
		}
		f := Fault{Pos: Pos{File: name}, Reason: "unknown variable, ignored"}
		if near := spelling.Nearest(name, maps.Keys(known)); near != "" {
			f.Reason += "; did you mean " + near + "?"
		}
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b Fault) int { return strings.Compare(a.File, b.File) })
	return out
}

// EnvName returns the variable of a key.
func EnvName(key string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// env binds the leaf's variable. An empty variable counts as not set.
func (l *layers) env(leaf leaf) {
	name := EnvName(leaf.key)
	text := os.Getenv(name)
	if text == "" {
		return
	}
	if l.given(leaf, name, text) {
		// BindEnv fails only without a key.
		_ = l.viper.BindEnv(leaf.key, name)
	}
}
