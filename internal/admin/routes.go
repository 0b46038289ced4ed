package admin

import (
	"fmt"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"xdsrelay/internal/admin/web"
)

// routes returns all paths but / and unknown ones.
func (s *Server) routes() []route {
	list := func(answer func(*http.Request) (int, any), query ...string) *endpoint {
		return &endpoint{answer: answer, reads: true, query: append(query, paging...)}
	}
	return []route{
		{path: "/ready", open: true, help: "200 while the relay serves clients, 503 while it starts or drains",
			get: &endpoint{answer: s.ready}},
		{path: "/live", open: true, help: "200 while the process runs",
			get: &endpoint{answer: s.live}},
		{path: "/server_info", help: "version, state, configuration file, store, and summary numbers",
			get: &endpoint{answer: s.serverInfo, reads: true}},
		{path: "/keys", help: "the aggregation keys of the relay, with clients or without; clients counts streams and REST clients, members counts their types: a client with three types is three members; ?disconnected=true selects those with clients and without a stream to an origin, ?find= those with a text in the name; ?sort=worst has those with NACKs and problems first; ?differences=true says in which fields the nodes of a key differ",
			get: list(s.listKeys, "disconnected", "find", "sort", "differences")},
		{path: "/keys/{key...}", help: "one key with its versions, its upstream stream, and its NACKs; second_upstream is there if clients request a type both by wildcard and by name",
			get: &endpoint{answer: s.oneKey, reads: true}},
		{path: "/changes/{key...}", help: "what the version ?version= of ?type=CDS changed under a key: the resources, compared with those before it, without secrets, while the relay remembers them",
			get: &endpoint{answer: s.changes, reads: true, query: []string{"type", "version"}}},
		{path: "/clients", help: "the streams of clients; ?state=NACKED,STALE, ?key=, ?type=CDS and ?user_agent= select some; the state of a client is the worst of its types that ?key= and ?type= select; ?sort=worst has the worst state first",
			get: list(s.listClients, clientQuery...)},
		{path: "/clients/{node...}", help: "the streams of the clients with this node id, with locality and metadata of the node, without secrets; the parameters are those of /clients; ?names=true adds the names of each type that a client requested or has, and their states",
			get: list(s.listNode, append([]string{"names"}, clientQuery...)...)},
		{path: "/nacks", help: "the NACKs of clients, the newest first, an item for each key, type, version and message, with the number of clients that still reject it; ?key=, ?type= and ?version= select items; ?diff=true with the rejected resources, compared with those that the client had, for the last 16 of a key",
			get: list(s.listNacks, "key", "type", "version", "diff")},
		{path: "/progress/{key...}", help: "how many clients have a version: ?type=CDS&version= takes the version that the origin gave, or that the relay made from the content; ?mark= repeats the mark of the previous answer, which says when the wait began; ?or_newer=true also accepts a version that was replaced before that",
			get: &endpoint{answer: s.progress, reads: true, query: []string{"type", "version", "mark", "or_newer"}}},
		{path: "/diff/{node...}", help: "the resources that a node NACKed or does not have yet, compared with those that it has",
			get: list(s.nodeDiff)},
		{path: "/config_dump", help: "the resources of ?key=, without secrets; ?type= and ?name= select resources, ?find= selects by a part of the name",
			get: list(s.dump, "key", "type", "name", "find")},
		{path: "/resources", help: "/config_dump without the content of the resources",
			get: list(s.listNames, "key", "type", "name", "find")},
		{path: "/origins", help: "the origins, in order of preference",
			get: list(s.listOrigins)},
		{path: "/members", help: "the members of the cluster, with the keys and streams of this relay; 404 if it is in no cluster",
			get: list(s.listMembers)},
		{path: "/members/{member...}", help: "the answer of a member to the rest of the path, such as /members/NAME/clients?state=NACKED; 504 if it does not answer within 2 s",
			get: &endpoint{raw: http.HandlerFunc(s.askMember)}},
		{path: "/events", help: "summary numbers as server-sent events, until the request ends",
			get: &endpoint{raw: s.events(), unlinked: true}},
		{path: "/history", help: "the numbers of clients, types by state, responses, ACKs and NACKs of the last fifteen minutes, an item each ten seconds, the oldest first",
			get: &endpoint{answer: s.listHistory}},
		{path: "/find", help: "the first keys and nodes that contain ?text=",
			get: &endpoint{answer: s.find, reads: true, query: []string{"text"}}},
		{path: "/rules", help: "the rules in force, with the connected clients that each matches, the keys that it gives them, and its last failure",
			get: &endpoint{answer: s.listRules, reads: true}},
		{path: "/explain", help: `the key of a node, with the result of each rule; ?type= only one type; the body is a node, or {"node": {…}, "peer": {…}}, with Content-Type: application/json; or, with Content-Type: application/yaml, a node or an Envoy bootstrap in YAML or JSON, and the peer as a second YAML document; GET ?node= takes the node of the first client with this id`,
			get:  &endpoint{answer: s.explainClient, reads: true, query: []string{"node", "type"}},
			post: &endpoint{answer: s.explain, reads: true, json: true, yaml: true, query: []string{"type"}}},
		{path: "/explain/diff", help: `the clients whose keys other rules would change; the body is {"rules": "the text of a rules file", "unmatched": "reject", "listeners": [{"address": "…", "identity": "…", "secrets": "…"}]}, with Content-Type: application/json`,
			post: &endpoint{answer: s.diff, reads: true, json: true, query: paging}},
		{path: "/metrics", open: true, help: "metrics for Prometheus",
			get: &endpoint{raw: s.opts.Metrics.Handler(), unlinked: true}},
		{path: "/logging", help: "the log level; POST ?level= sets it",
			get:  &endpoint{answer: s.level},
			post: &endpoint{answer: s.setLevel, query: []string{"level"}}},
		{path: "/reload", help: "read the configuration file again; ?force=true ignores aggregation.max_rekeyed; the status is 422 if the file is rejected",
			post: &endpoint{answer: s.reload, query: []string{"force"}}},
		{path: "/drain", help: "drain and stop the relay",
			post: &endpoint{answer: s.drain}},
		{path: "/debug/pprof/{profile...}", help: "profiles of the Go runtime",
			get: &endpoint{raw: s.profiles(), unlinked: true}},
		{path: "/ui/{view...}", open: true, help: "the web page; / leads browsers to it",
			get: &endpoint{raw: http.HandlerFunc(s.view)}},
		{path: assetsPath, open: true, help: "the files of the web page",
			get: &endpoint{raw: http.HandlerFunc(s.asset)}},
	}
}

const assetsPath = "/assets/{file...}"

// view answers with the page. The status is 404 if the page has no such view.
func (s *Server) view(w http.ResponseWriter, r *http.Request) {
	switch {
	case web.IsView(r.PathValue("view")):
		web.ServePage(w, r)
	case web.AcceptsHTML(r) && !strings.Contains(r.PathValue("view"), "/"):
		web.ServeNoPage(w, r)
	default:
		s.notFound(w, r)
	}
}

func (s *Server) asset(w http.ResponseWriter, r *http.Request) {
	if !web.ServeAsset(w, r, r.PathValue("file")) {
		s.notFound(w, r)
	}
}

// NoSuchPath ends the error for an unknown path. Clients use it to tell that from an unknown item
// at a known path.
const NoSuchPath = ": no such path; GET / lists all paths"

func (s *Server) notFound(w http.ResponseWriter, r *http.Request) {
	s.write(w, formats[r.URL.Query().Get("format")], http.StatusNotFound, failure{r.URL.Path + NoSuchPath})
}

// tail is a path that ends in one value with any characters.
type tail struct {
	prefix, name string
	handler      http.Handler
}

// mux dispatches requests to their routes. A path may end in a node's id such as spiffe://d/ns/a,
// or in a key. http.ServeMux would clean such a path and redirect, so mux matches these routes
// itself. Browsers and proxies clean the paths /clients/. and /clients/.., also if they are encoded.
// So the value may be in ?name= instead.
func (s *Server) mux() http.Handler {
	m := http.NewServeMux()
	routes := s.routes()
	var tails []tail
	for i := range routes {
		h := s.guard(&routes[i])
		m.Handle(routes[i].path, h)
		if prefix, value, ok := strings.Cut(routes[i].path, "{"); ok {
			tails = append(tails, tail{prefix, strings.TrimSuffix(value, "...}"), h})
		}
	}
	home := s.guard(&route{get: &endpoint{raw: index(routes)}})
	browser := s.guard(&route{open: true, get: &endpoint{raw: http.HandlerFunc(web.Redirect)}})
	m.HandleFunc("/{$}", func(w http.ResponseWriter, r *http.Request) {
		if web.AcceptsHTML(r) {
			browser.ServeHTTP(w, r)
			return
		}
		w.Header().Add("Vary", "Accept")
		home.ServeHTTP(w, r)
	})
	// An unknown path is not found with any method of other paths.
	nowhere := &endpoint{raw: http.HandlerFunc(s.notFound)}
	m.Handle("/", s.guard(&route{get: nowhere, post: nowhere}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, t := range tails {
			if rest, ok := strings.CutPrefix(r.URL.Path, t.prefix); ok { // decoded
				if q := r.URL.Query(); rest == "" && q.Has("name") {
					rest = q.Get("name")
					q.Del("name")
					r.URL.RawQuery = q.Encode()
				}
				r.SetPathValue(t.name, rest)
				t.handler.ServeHTTP(w, r)
				return
			}
		}
		m.ServeHTTP(w, r)
	})
}

func index(routes []route) http.Handler {
	var b strings.Builder
	for _, r := range routes {
		fmt.Fprintf(&b, "%-16s %-18s %s\n", strings.Join(r.allow(), " "), strings.ReplaceAll(r.path, "...", ""), r.help)
	}
	b.WriteString("\nBrowsers get a web page at /. Answers are JSON, or YAML with ?format=yaml. Lists take ?limit= and ?page_token=. /clients/?name=.. is /clients/.., from which browsers and proxies remove the dots.\n")
	all := b.String()
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte(all)) // an error means that the client has gone
	})
}

// profile calls net/http/pprof directly. Its own handlers are registered with a mux that is not
// served.
func profile(w http.ResponseWriter, r *http.Request) {
	switch r.PathValue("profile") {
	case "cmdline":
		pprof.Cmdline(w, r)
	case "profile":
		pprof.Profile(w, r)
	case "symbol":
		pprof.Symbol(w, r)
	case "trace":
		pprof.Trace(w, r)
	default:
		pprof.Index(w, r)
	}
}

// profileRest is the least pause after a profile that stops the whole program, so that clients wait
// for few of them.
const profileRest = 500 * time.Millisecond

// profiles makes one profile at a time. The next one waits four times as long as the last one took,
// except after profiles that mostly wait.
func (s *Server) profiles() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !enter(r.Context(), s.profile) {
			return
		}
		began := time.Now()
		profile(w, r)
		rest := 4 * time.Since(began)
		switch p := r.PathValue("profile"); {
		case p == "profile", p == "trace", r.URL.Query().Has("seconds"):
			rest = 0
		case p != "" && p != "cmdline" && p != "symbol":
			rest = max(rest, profileRest)
		}
		time.AfterFunc(rest, func() { <-s.profile })
	})
}
