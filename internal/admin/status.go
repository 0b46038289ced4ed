package admin

import (
	"cmp"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"xdsrelay/internal/fanout"
	"xdsrelay/internal/orchestrator"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/redact"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
)

// serverInfo is the relay in short.
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
	ConfigAge       float64     `json:"config_age_seconds"`
	Level           string      `json:"log_level"`

	Configuration *Configuration `json:"configuration,omitempty"`
	Store         *storeInfo     `json:"store,omitempty"`
}

type streamCount struct {
	SotW  int `json:"sotw"`
	Delta int `json:"delta"`
	REST  int `json:"rest"` // who polls, or did until a moment ago
}

// storeInfo is the last known good on disk.
type storeInfo struct {
	Path      string `json:"path"`
	Files     int    `json:"files"`
	Bytes     int64  `json:"bytes"`
	Foreign   int    `json:"files_of_another_format"`
	SetAside  int    `json:"damaged_files"`
	Oldest    string `json:"oldest,omitempty"` // when it was last confirmed
	Waiting   int    `json:"unwritten"`
	Written   uint64 `json:"written"`
	Failed    uint64 `json:"failed"`
	Evicted   uint64 `json:"evicted"`
	Damaged   uint64 `json:"damaged"`
	Failing   bool   `json:"failing"`
	LastError string `json:"last_error,omitempty"`
	LastAt    string `json:"last_error_at,omitempty"`
}

func (s *Server) storeInfo() *storeInfo {
	if s.opts.Store == nil {
		return nil
	}
	st := s.opts.Store.Status()
	at := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.UTC().Format(time.RFC3339)
	}
	return &storeInfo{
		Path: st.Path, Files: st.Files, Bytes: st.Bytes, Foreign: st.Foreign, SetAside: st.SetAside, Oldest: at(st.Oldest),
		Waiting: st.Waiting, Written: st.Written, Failed: st.Failed, Evicted: st.Evicted, Damaged: st.Damaged,
		Failing: st.Failing, LastError: st.LastError, LastAt: at(st.LastErrorAt),
	}
}

func (s *Server) serverInfo(*http.Request) (int, any) {
	m := s.opts.Metrics
	info := serverInfo{
		Name: s.opts.Name, Version: s.opts.Version, Go: runtime.Version(),
		State: phases[s.phase.Load()], Started: s.started, Uptime: time.Since(s.started).Seconds(),
		Streams: streamCount{SotW: m.Streams[telemetry.SotW].Value(), Delta: m.Streams[telemetry.Delta].Value(),
			REST: m.Streams[telemetry.REST].Value()},
		Keys: m.Keys.Value(), UpstreamStreams: m.UpstreamStreams.Value(),
		ConfigAge: m.ConfigAge().Seconds(), Level: levelName(s.opts.Level.Level()),
		Store: s.storeInfo(),
	}
	if s.opts.Configuration != nil {
		c := s.opts.Configuration()
		info.Configuration = &c
	}
	return http.StatusOK, info
}

func keyPlace(k *orchestrator.KeyStatus) string { return k.Key }

// keys returns all, in order.
func (s *Server) keys() []orchestrator.KeyStatus {
	return s.opts.Keys.Keys()
}

func (s *Server) listKeys(r *http.Request) (int, any) {
	return paged(r, s.keys(), keyPlace, whole[orchestrator.KeyStatus])
}

func (s *Server) oneKey(r *http.Request) (int, any) {
	name := r.PathValue("key")
	key, ok := s.keyCalled(name)
	if !ok {
		return fail(http.StatusBadRequest, notKey(name))
	}
	k, ok := s.opts.Keys.Key(key)
	if !ok {
		return fail(http.StatusNotFound, fmt.Sprintf("key %s is not in use", name))
	}
	return http.StatusOK, k
}

// keyCalled returns the key that people mean by name: as it is shown; as JSON
// shows it, with backslashes; or its elements without quotes, if that is one key
// in use. It reports false for what can be no key.
func (s *Server) keyCalled(name string) (xds.Key, bool) {
	key, is := xds.ParseKey(name)
	if s.used(key) {
		return key, true
	}
	for _, text := range []string{name, `"` + name + `"`} {
		if shown, err := strconv.Unquote(text); err == nil {
			if k, _ := xds.ParseKey(shown); s.used(k) {
				return k, true
			}
		}
	}
	same := slices.DeleteFunc(s.keys(), func(k orchestrator.KeyStatus) bool { return strings.Join(k.Elements, "/") != name })
	if len(same) == 1 && name != "" {
		return xds.NewKey(same[0].Elements...), true
	}
	return key, is
}

func (s *Server) used(k xds.Key) bool {
	_, ok := s.opts.Keys.Key(k)
	return ok
}

func notKey(name string) string {
	return fmt.Sprintf("key: %q is no key, or means several: wants elements as /keys shows them, joined by / and percent-encoded", name)
}

// keyNacks is what the clients of a key refused.
type keyNacks struct {
	Key   string                    `json:"key"`
	Total uint64                    `json:"nacks_total"`
	Nacks []orchestrator.NackStatus `json:"nacks"`
}

// listNacks has one item for each key of which something was refused. What that
// was is read key by key, for those on the page only.
func (s *Server) listNacks(r *http.Request) (int, any) {
	refused := slices.DeleteFunc(s.keys(), func(k orchestrator.KeyStatus) bool { return k.NacksTotal == 0 })
	return paged(r, refused, keyPlace, func(k *orchestrator.KeyStatus) (any, bool) {
		key, _ := xds.ParseKey(k.Key) // Key writes it so
		now, ok := s.opts.Keys.Key(key)
		return keyNacks{Key: now.Key, Total: now.NacksTotal, Nacks: now.Nacks}, ok
	})
}

// clientPlace is the stream's number: a node's id comes from the client, and
// may be longer than a URL.
func clientPlace(c *fanout.ClientStatus) string { return fmt.Sprintf("%020d", c.Stream) }

func (s *Server) listClients(r *http.Request) (int, any) {
	q := r.URL.Query()
	key := q.Get("key")
	if q.Has("key") {
		k, ok := s.keyCalled(key)
		if !ok {
			return fail(http.StatusBadRequest, notKey(key))
		}
		key = k.String()
	}
	return s.clients(r, func(c *fanout.ClientStatus) bool {
		return key == "" || slices.ContainsFunc(c.Types, func(t fanout.TypeStatus) bool { return t.Key == key })
	})
}

func (s *Server) listNode(r *http.Request) (int, any) {
	id := r.PathValue("node")
	found := false
	status, p := s.clients(r, func(c *fanout.ClientStatus) bool {
		found = found || c.Node == id
		return c.Node == id
	})
	if !found && status == http.StatusOK {
		return fail(http.StatusNotFound, fmt.Sprintf("no client has the node id %q", id))
	}
	return status, p
}

// clients answers with those that are wanted.
func (s *Server) clients(r *http.Request, wanted func(*fanout.ClientStatus) bool) (int, any) {
	all := slices.DeleteFunc(s.opts.Clients.Clients(), func(c fanout.ClientStatus) bool { return !wanted(&c) })
	slices.SortFunc(all, func(a, b fanout.ClientStatus) int { return cmp.Compare(a.Stream, b.Stream) })
	return paged(r, all, clientPlace, whole)
}

// origin is an upstream.OriginStatus as it is shown.
type origin struct {
	Name        string     `json:"name"`
	Address     string     `json:"address"`
	Away        bool       `json:"away"`
	AwaySince   *time.Time `json:"away_since,omitempty"`
	Streams     int        `json:"streams"`
	Connections int        `json:"connections"`
	Reconnects  uint64     `json:"reconnects"`
	LastError   string     `json:"last_error,omitempty"`
	LastErrorAt *time.Time `json:"last_error_at,omitempty"`
	Silent      int        `json:"silent_streams"`
	SilentSince *time.Time `json:"silent_since,omitempty"`
}

func show(o upstream.OriginStatus) origin {
	out := origin{Name: o.Name, Address: o.Address, Away: o.Away, Streams: o.Streams, Connections: o.Connections, Reconnects: o.Reconnects, Silent: o.Silent}
	if !o.SilentSince.IsZero() {
		out.SilentSince = &o.SilentSince
	}
	if o.Away {
		out.AwaySince = &o.AwaySince
	}
	if o.LastError != nil {
		out.LastError, out.LastErrorAt = redact.Text(o.LastError.Error()), &o.LastErrorAt
	}
	return out
}

// listOrigins is one page: there are as many as the configuration has.
func (s *Server) listOrigins(*http.Request) (int, any) {
	out := struct {
		Items []origin `json:"items"`
	}{Items: []origin{}}
	for _, o := range s.opts.Origins.Origins() {
		out.Items = append(out.Items, show(o))
	}
	return http.StatusOK, out
}
