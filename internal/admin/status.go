package admin

import (
	"fmt"
	"iter"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"xdsrelay/internal/admin/compare"
	"xdsrelay/internal/admin/keystatus"
	"xdsrelay/internal/admin/overview"
	"xdsrelay/internal/admin/rulestatus"
	"xdsrelay/internal/admin/sources"
	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/orchestrator/history"
	"xdsrelay/internal/store"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
)

// serverInfo is the answer to /server_info.
type serverInfo struct {
	Name            string      `json:"name"`
	Version         string      `json:"version"`
	Go              string      `json:"go"`
	State           string      `json:"state"`
	Started         time.Time   `json:"started"`
	Uptime          float64     `json:"uptime_seconds"`
	Streams         streamCount `json:"downstream_streams"`
	Keys            int         `json:"keys"`
	UpstreamStreams int         `json:"upstream_streams"`
	StaleTypes      int         `json:"stale_types"` // of keys, served from the last known good
	ConfigAge       float64     `json:"config_age_seconds"`
	Level           string      `json:"log_level"`

	// UserAgents counts the clients by the user agent that their nodes name, the most frequent first.
	UserAgents []inspect.UserAgentCount `json:"user_agents"`

	// Problems are the relay's own problems, the first to look at first.
	Problems []overview.Problem `json:"problems"`
	// RecentRefusals has the streams that were refused, or ended by a fault, in the last minute.
	RecentRefusals []refusal.Recent `json:"recent_refusals,omitempty"`

	Configuration *Configuration `json:"configuration,omitempty"`
	Store         *store.Status  `json:"store,omitempty"`
}

type streamCount struct {
	SotW  int `json:"sotw"`
	Delta int `json:"delta"`
	REST  int `json:"rest"` // clients that polled recently
}

// store returns the state of the last known good on disk; nil: nothing is stored.
func (s *Server) store() *store.Status {
	if s.opts.Store == nil {
		return nil
	}
	return new(s.opts.Store.Status())
}

func (s *Server) serverInfo(*http.Request) (int, any) {
	m := s.opts.Metrics
	info := serverInfo{
		Name: s.opts.Name, Version: s.opts.Version, Go: runtime.Version(),
		State: phases[s.phase.Load()], Started: s.started, Uptime: time.Since(s.started).Seconds(),
		Streams: streamCount{SotW: m.Streams[telemetry.SotW].Value(), Delta: m.Streams[telemetry.Delta].Value(),
			REST: m.Streams[telemetry.REST].Value()},
		Keys: m.Keys.Value(), UpstreamStreams: m.UpstreamStreams.Value(), StaleTypes: m.Stale.Value(),
		ConfigAge: m.ConfigAge().Seconds(), Level: levelName(s.opts.Level.Level()), UserAgents: s.opts.Clients.UserAgents(),
		Problems: s.problems(s.keys(), s.opts.Origins.Origins()), Store: s.store(), RecentRefusals: s.opts.Clients.RecentRefusals(),
	}
	if s.opts.Configuration != nil {
		c := s.opts.Configuration()
		info.Configuration = &c
	}
	return http.StatusOK, info
}

func keyPlace(k *keystatus.Key) string { return k.Key }

// keys returns all keys in order.
func (s *Server) keys() []keystatus.Key {
	return s.opts.Keys.Keys()
}

func (s *Server) listKeys(r *http.Request) (int, any) {
	disconnected, err := boolParam(r, "disconnected")
	if err != nil {
		return fail(http.StatusBadRequest, err.Error())
	}
	all := s.keys()
	if disconnected {
		all = slices.DeleteFunc(all, func(k keystatus.Key) bool { return !k.Disconnected() })
	}
	if text := r.URL.Query().Get("find"); text != "" {
		all = slices.DeleteFunc(all, func(k keystatus.Key) bool { return !has(k.Key, strings.ToLower(text)) })
	}
	keystatus.Count(all, s.opts.Clients.TypeStates(func(xds.Key, xds.TypeURL) bool { return true }))
	if differ, err := boolParam(r, "differences"); err != nil {
		return fail(http.StatusBadRequest, err.Error())
	} else if differ {
		of := rulestatus.Differences(s.opts.Clients.ClientsAfter(0), "", diffTime)
		for i := range all {
			all[i].Differences = of[all[i].Key]
		}
	}
	place := keyPlace
	switch by := r.URL.Query().Get("sort"); by {
	case "":
	case "worst":
		place = (*keystatus.Key).WorstPlace
		slices.SortFunc(all, func(a, b keystatus.Key) int { return strings.Compare(place(&a), place(&b)) })
	default:
		return fail(http.StatusBadRequest, notSort(by))
	}
	status, answer := paged(r, all, place, whole[keystatus.Key])
	return status, withTotal(answer, len(all))
}

// changes answers with what a version changed under a key.
func (s *Server) changes(r *http.Request) (int, any) {
	name, q := r.PathValue("key"), r.URL.Query()
	key, ok := s.parseKey(name)
	if !ok {
		return fail(http.StatusBadRequest, notKey(name))
	}
	typ, err := parseType(q.Get("type"))
	if err != nil {
		return fail(http.StatusBadRequest, err.Error())
	}
	all, more, known := s.opts.Keys.Changes(key, typ, q.Get("version"), maxDifferences)
	return http.StatusOK, showRejected(&history.Rejected{Differences: all, More: more, Unknown: !known}, newBudget())
}

func (s *Server) oneKey(r *http.Request) (int, any) {
	name := r.PathValue("key")
	key, ok := s.parseKey(name)
	if !ok {
		return fail(http.StatusBadRequest, notKey(name))
	}
	k, ok := s.opts.Keys.Key(key)
	if !ok {
		return fail(http.StatusNotFound, s.notUsed(key))
	}
	one := []keystatus.Key{k}
	ofKey := s.opts.Clients.TypeStates(func(k xds.Key, _ xds.TypeURL) bool { return k == key })
	keystatus.Count(one, ofKey)
	if len(k.Nacks) > 0 {
		history.CountNacks(ofKey).SetStillNacking(key, k.Nacks)
	}
	one[0].Differences = rulestatus.Differences(s.opts.Clients.ClientsAfter(0), k.Key, diffTime/10)[k.Key] // the page asks often
	return http.StatusOK, one[0]
}

// listRules answers with what each rule does to the connected clients.
func (s *Server) listRules(*http.Request) (int, any) {
	return http.StatusOK, rulestatus.ReadRules(s.opts.Rules(), s.opts.Clients.PreviewRekey, diffTime)
}

// parseKey returns the key that a user means by name. A name in the form of xds.Key.String is that
// key, in use or not: otherwise /progress could answer for the wrong key. Another name may be a key
// in use as JSON shows it, with backslashes, or its elements without quotes if no other key in use
// reads so. It reports false if the name means no key.
func (s *Server) parseKey(name string) (xds.Key, bool) {
	if key, is := xds.ParseKey(name); is {
		return key, true
	}
	for _, text := range []string{name, `"` + name + `"`} {
		if shown, err := strconv.Unquote(text); err == nil {
			if k, _ := xds.ParseKey(shown); s.used(k) {
				return k, true
			}
		}
	}
	if same := s.spelled(name); len(same) == 1 {
		return same[0], true
	}
	return xds.Key{}, false
}

// spelled returns the keys in use whose elements, joined without quotes, are name.
func (s *Server) spelled(name string) (keys []xds.Key) {
	for _, k := range s.keys() {
		if name != "" && strings.Join(k.Elements, "/") == name {
			keys = append(keys, xds.NewKey(k.Elements...))
		}
	}
	return keys
}

// notUsed is the error for a key that is not in use. It names keys that read alike.
func (s *Server) notUsed(key xds.Key) string {
	text := fmt.Sprintf("key %s is not in use", key)
	for _, k := range s.spelled(strings.Join(key.Elements(), "/")) {
		text += fmt.Sprintf("; %s is in use, but is another key", k)
	}
	return text
}

func (s *Server) used(k xds.Key) bool { return s.opts.Keys.Used(k) }

func notKey(name string) string {
	return fmt.Sprintf("key: must be one key as /keys shows it, but is %q", name)
}

// Nack is an item of /nacks.
type Nack struct {
	Key string `json:"key"`
	history.Nack
	*Rejected // with ?diff=true
}

// Rejected has the resources of a NACK, beside those that its first client had. They are there also
// when the client has accepted something newer.
type Rejected struct {
	Resources []compare.Difference `json:"resources"`
	NotHeld   bool                 `json:"not_held_any_more,omitempty"` // they are not kept
	More      int                  `json:"more,omitempty"`              // further resources
}

// showRejected returns the resources of a NACK for which the budget suffices.
func showRejected(r *history.Rejected, b *budget) *Rejected {
	out := &Rejected{Resources: []compare.Difference{}, NotHeld: r == nil || r.Unknown}
	if r == nil {
		return out
	}
	out.More = r.More
	var more int
	out.Resources, more = b.differ(r.Differences)
	out.More += more
	return out
}

// listNacks answers with one item for each key, type, version and message, the newest first, with
// how many clients still reject it. Rows are made as the page needs them.
func (s *Server) listNacks(r *http.Request) (int, any) {
	only, isOnly, bad := s.keyParam(r)
	if bad != nil {
		return http.StatusBadRequest, *bad
	}
	diff, err := boolParam(r, "diff")
	if err != nil {
		return fail(http.StatusBadRequest, err.Error())
	}
	q := r.URL.Query()
	var typ xds.TypeURL
	if q.Has("type") {
		if typ, err = parseType(q.Get("type")); err != nil {
			return fail(http.StatusBadRequest, err.Error())
		}
	}
	wanted := func(n *history.KeyNack) bool {
		return (!isOnly || n.Key == only) && (typ == "" || n.Type == string(typ)) && (!q.Has("version") || n.Version == q.Get("version"))
	}
	now := history.CountNacks(s.opts.Clients.TypeStates(func(k xds.Key, _ xds.TypeURL) bool { return !isOnly || k == only }))
	return pagedFrom(r, func(after string) iter.Seq[*history.KeyNack] {
		before, err := strconv.ParseUint(after, 10, 64)
		if err != nil {
			before = 0 // the first page
		}
		return func(yield func(*history.KeyNack) bool) {
			for n := range s.opts.Keys.Nacks(before) {
				if !wanted(&n) {
					continue
				}
				rows := []history.Nack{n.Nack}
				now.SetStillNacking(n.Key, rows)
				n.Nack = rows[0]
				if !yield(&n) {
					return
				}
			}
		}
	}, func(n *history.KeyNack) string {
		return strconv.FormatUint(n.Place, 10)
	}, func(n *history.KeyNack) (any, bool) {
		out := Nack{Key: n.Key.String(), Nack: n.Nack}
		if diff {
			out.Rejected = showRejected(n.Rejected, newBudget())
		}
		return out, true
	})
}

// boolParam returns a parameter that is true or false; false if it is not given.
func boolParam(r *http.Request, name string) (bool, error) {
	switch v := r.URL.Query().Get(name); v {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	default:
		return false, fmt.Errorf("%s: must be true or false", name)
	}
}

// keyParam returns the key of ?key=, if there is one. bad is the error for one that is no key.
func (s *Server) keyParam(r *http.Request) (key xds.Key, given bool, bad *failure) {
	q := r.URL.Query()
	if !q.Has("key") {
		return key, false, nil
	}
	key, ok := s.parseKey(q.Get("key"))
	if !ok {
		return key, true, &failure{notKey(q.Get("key"))}
	}
	return key, true, nil
}

// listOrigins answers with the origins, in order of preference.
func (s *Server) listOrigins(r *http.Request) (int, any) {
	type origin struct {
		upstream.OriginStatus
		place int // in the order of preference
	}
	var all []origin
	for i, o := range s.opts.Origins.Origins() {
		all = append(all, origin{o, i})
	}
	return paged(r, all, func(o *origin) string { return fmt.Sprintf("%06d", o.place) }, whole[origin])
}

const noCluster = "the relay is in no cluster: it has no cluster.name"

// listMembers answers with the members of the cluster, by name.
func (s *Server) listMembers(r *http.Request) (int, any) {
	if s.opts.Members == nil {
		return fail(http.StatusNotFound, noCluster)
	}
	keys, load := s.opts.Keys.Roles(), sources.Load{}
	load.KeysOwned, load.KeysFollowed, load.KeysDirect = keys[telemetry.KeyOwner], keys[telemetry.KeyFollower], keys[telemetry.KeyDirect]
	for _, n := range s.opts.Metrics.Streams {
		load.Streams += n.Value()
	}
	return paged(r, sources.Members(s.opts.Members.Members(), load), func(m *sources.Member) string { return fmt.Sprintf("%06d", m.Place) }, whole[sources.Member])
}

func (s *Server) askMember(w http.ResponseWriter, r *http.Request) {
	if s.opts.Members == nil {
		s.write(w, jsonFormat, http.StatusNotFound, failure{noCluster})
		return
	}
	s.opts.Members.ServeHTTP(w, r)
}
