package admin

import (
	"fmt"
	"net/http"
	"strconv"

	"xdsrelay/internal/orchestrator"
	"xdsrelay/internal/xds"
)

// progress is the answer to /progress.
type progress struct {
	orchestrator.Progress
	// Note says of a key that is not in use which one is that reads alike.
	Note string `json:"note,omitempty"`
}

// progress says how far a version of a key's type has come. A key that is not in use
// is no fault: its clients may be yet to come, or to come again.
func (s *Server) progress(r *http.Request) (int, any) {
	q := r.URL.Query()
	name := r.PathValue("key")
	key, ok := s.keyCalled(name)
	if !ok {
		return fail(http.StatusBadRequest, notKey(name))
	}
	typ, err := typeCalled(q.Get("type"))
	if err != nil {
		return fail(http.StatusBadRequest, err.Error())
	}
	if q.Get("version") == "" {
		return fail(http.StatusBadRequest, "version: wants a version of the type, as /keys/{key} has them")
	}
	newer := false
	if v := q.Get("or_newer"); v != "" {
		if newer, err = strconv.ParseBool(v); err != nil {
			return fail(http.StatusBadRequest, "or_newer: wants true or false")
		}
	}
	of := orchestrator.Awaited{Key: key, Type: typ, Version: q.Get("version"), Mark: q.Get("mark"), OrNewer: newer}
	p := s.opts.Keys.Progress(of, s.opts.Clients.Standings)
	// Looked at afterwards: none of those that are missing was sent away before.
	p.Draining = s.phase.Load() == draining
	out := progress{Progress: p}
	if !p.InUse {
		out.Note = s.notUsed(key)
	}
	return http.StatusOK, out
}

// typeCalled is the type that people mean: by its URL or its short name.
func typeCalled(name string) (xds.TypeURL, error) {
	t, ok := xds.ParseType(name)
	if !ok {
		return "", fmt.Errorf("type: %q is no resource type: wants a URL, or a short name such as CDS", name)
	}
	return t, nil
}
