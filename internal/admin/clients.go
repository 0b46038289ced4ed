package admin

import (
	"cmp"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/xds"
)

// clientFilter selects clients for /clients. A zero field selects all.
type clientFilter struct {
	node      *string
	key       string      // as in xds.Key.String
	typ       xds.TypeURL // the client has this type
	states    []string    // the worst state of the types that key and typ select is one of these
	userAgent string      // its name, or its name and version with a space between them
}

// clientQuery are the query parameters of /clients besides paging.
var clientQuery = []string{"state", "key", "type", "user_agent", "sort"}

func (s *Server) clientFilter(r *http.Request) (f clientFilter, bad *failure) {
	key, given, bad := s.keyParam(r)
	if bad != nil {
		return f, bad
	}
	if given {
		f.key = key.String()
	}
	q := r.URL.Query()
	if name := q.Get("type"); name != "" {
		typ, err := parseType(name)
		if err != nil {
			return f, &failure{err.Error()}
		}
		f.typ = typ
	}
	if list := q.Get("state"); list != "" {
		for name := range strings.SplitSeq(list, ",") {
			is := strings.ToUpper(strings.NewReplacer("_", " ", "-", " ").Replace(name))
			if !slices.Contains(inspect.States, is) {
				return f, &failure{fmt.Sprintf("state: must be SYNCED, UNCONFIRMED, NOT_SENT, STALE or NACKED, or several with commas between them, but has %q", name)}
			}
			f.states = append(f.states, is)
		}
	}
	f.userAgent = q.Get("user_agent")
	return f, nil
}

// has reports whether the filter selects a client. state is the worst state of the types that key and
// typ select, and since is when it began.
func (f *clientFilter) has(c *inspect.ClientStatus) (state string, since time.Time, ok bool) {
	if f.node != nil && c.Node != *f.node || !f.hasUserAgent(c) {
		return "", since, false
	}
	for i := range c.Types {
		t := &c.Types[i]
		if f.key != "" && t.Key != f.key || f.typ != "" && t.Type != string(f.typ) {
			continue
		}
		if !ok || inspect.Worse(state, t.State) != state || state == t.State && t.Since.Before(since) {
			state, since, ok = t.State, t.Since, true
		}
	}
	if len(c.Types) == 0 && f.key == "" && f.typ == "" { // it was sent nothing yet
		state, since, ok = inspect.StateNotSent, c.Since, true
	}
	return state, since, ok && (len(f.states) == 0 || slices.Contains(f.states, state))
}

func (f *clientFilter) hasUserAgent(c *inspect.ClientStatus) bool {
	return f.userAgent == "" || f.userAgent == c.UserAgent || f.userAgent == strings.TrimSpace(c.UserAgent+" "+c.UserAgentVersion)
}

// clientPlace is the stream's number. A node's id would not do: the client chooses it, and it may
// be longer than a URL.
func clientPlace(c *inspect.ClientStatus) string { return fmt.Sprintf("%020d", c.Stream) }

func (s *Server) listClients(r *http.Request) (int, any) {
	f, bad := s.clientFilter(r)
	if bad != nil {
		return http.StatusBadRequest, *bad
	}
	return s.clients(r, &f, whole[inspect.ClientStatus])
}

func (s *Server) listNode(r *http.Request) (int, any) {
	f, bad := s.clientFilter(r)
	if bad != nil {
		return http.StatusBadRequest, *bad
	}
	id := r.PathValue("node")
	f.node = &id
	detail, types := inspect.Details(), map[uint64]func() []inspect.TypeConfig{} // by stream
	if r.URL.Query().Get("names") == "true" {
		for _, c := range s.opts.Clients.ClientConfigs() {
			if c.Node.ID == id {
				types[c.Stream] = c.Types
			}
		}
	}
	status, p := s.clients(r, &f, func(c *inspect.ClientStatus) (any, bool) {
		d := detail(c)
		if of := types[c.Stream]; of != nil {
			d.Names = inspect.NamesOf(of())
		}
		return d, true
	})
	if got, ok := p.(page); ok && len(got.Items) == 0 && r.URL.Query().Get("page_token") == "" {
		for c := range s.opts.Clients.ClientsAfter(0) {
			if c.Node == id {
				return fail(http.StatusNotFound, fmt.Sprintf("the node %q is connected, but the filter does not select it", id))
			}
		}
		return unknownNode(id)
	}
	return status, p
}

// showClient returns the item for a client.
type showClient = func(*inspect.ClientStatus) (any, bool)

// clients answers with the clients that the filter selects: in the order of their streams, or with
// ?sort=worst those in the worst state first.
func (s *Server) clients(r *http.Request, f *clientFilter, show showClient) (int, any) {
	switch by := r.URL.Query().Get("sort"); by {
	case "":
		return s.clientsByStream(r, f, show)
	case "worst":
		return s.worstClients(r, f, show)
	default:
		return fail(http.StatusBadRequest, notSort(by))
	}
}

// clientsByStream examines only as many clients as the page needs.
func (s *Server) clientsByStream(r *http.Request, f *clientFilter, show showClient) (int, any) {
	_, after, err := pageOf(r)
	from := uint64(0) // numbers begin at 1
	if after != "" && err == nil {
		if from, err = strconv.ParseUint(after, 10, 64); err != nil {
			return fail(http.StatusBadRequest, errPageToken.Error())
		}
	}
	return pagedFrom(r, func(string) iter.Seq[*inspect.ClientStatus] {
		return func(yield func(*inspect.ClientStatus) bool) {
			for c := range s.opts.Clients.ClientsAfter(from) {
				if _, _, ok := f.has(&c); ok && !yield(&c) {
					return
				}
			}
		}
	}, clientPlace, show)
}

// ranked is a client with its place in the order of worstClients.
type ranked struct {
	place string
	inspect.ClientStatus
}

// worstClients answers with the clients in the worst state first, and among these with those that
// have been in it for longest. Clients that are SYNCED are in the order of their nodes. It examines all
// clients, and counts them. Between two pages a client may change its state; then it may be on both
// pages or on none.
func (s *Server) worstClients(r *http.Request, f *clientFilter, show showClient) (int, any) {
	limit, after, err := pageOf(r)
	if err != nil {
		return fail(http.StatusBadRequest, err.Error())
	}
	// rows are the first limit+1 rows behind after: the page, and whether another one follows.
	var rows []ranked
	order := func(a, b ranked) int { return cmp.Compare(a.place, b.place) }
	total := 0
	for c := range s.opts.Clients.ClientsAfter(0) {
		state, since, ok := f.has(&c)
		if !ok {
			continue
		}
		total++
		rank := len(inspect.States) - slices.Index(inspect.States, state)
		place := fmt.Sprintf("%d %020d %020d", rank, since.UnixNano(), c.Stream)
		if state == inspect.StateSynced {
			place = fmt.Sprintf("%d %.100s %020d", rank, c.Node, c.Stream)
		}
		if place <= after {
			continue
		}
		if rows = append(rows, ranked{place, c}); len(rows) > 2*limit+2 {
			slices.SortFunc(rows, order)
			rows = rows[:limit+1]
		}
	}
	slices.SortFunc(rows, order)
	status, answer := paged(r, rows, func(c *ranked) string { return c.place }, func(c *ranked) (any, bool) { return show(&c.ClientStatus) })
	return status, withTotal(answer, total)
}

func notSort(by string) string { return fmt.Sprintf("sort: must be worst or absent, but is %q", by) }

// withTotal adds the length of the whole list to an answer that is a page.
func withTotal(answer any, total int) any {
	if p, ok := answer.(page); ok {
		p.Total = &total
		return p
	}
	return answer
}

// unknownNode is the answer to a request about a node without a stream.
func unknownNode(id string) (int, any) {
	return fail(http.StatusNotFound, fmt.Sprintf("no client has the node id %q; if the relay refuses it, relay status and the log have the reason", id))
}
