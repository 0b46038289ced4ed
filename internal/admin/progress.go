package admin

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"xdsrelay/internal/admin/keystatus"
	"xdsrelay/internal/xds"
)

// progress is the answer to /progress.
type progress struct {
	keystatus.Progress
	// Note names another key that reads alike if the key is not in use. For a version that has not
	// come it names the known obstacle.
	Note string `json:"note,omitempty"`
}

// progress answers with the progress of a version. A key that is not in use is no error: its
// clients may come later.
func (s *Server) progress(r *http.Request) (int, any) {
	q := r.URL.Query()
	name := r.PathValue("key")
	key, ok := s.parseKey(name)
	if !ok {
		return fail(http.StatusBadRequest, notKey(name))
	}
	typ, err := parseType(q.Get("type"))
	if err != nil {
		return fail(http.StatusBadRequest, err.Error())
	}
	if q.Get("version") == "" {
		return fail(http.StatusBadRequest, "version: must be a version of the type, as in /keys/{key}")
	}
	newer := false
	if v := q.Get("or_newer"); v != "" {
		if newer, err = strconv.ParseBool(v); err != nil {
			return fail(http.StatusBadRequest, "or_newer: must be true or false")
		}
	}
	of := keystatus.Awaited{Key: key, Type: typ, Version: q.Get("version"), Mark: q.Get("mark"), OrNewer: newer}
	p := s.opts.Keys.Progress(of, s.opts.Clients.TypeStates)
	// The phase is read afterwards: if it is not draining, no client that is missing was sent away.
	p.Draining = s.phase.Load() == draining
	out := progress{Progress: p}
	switch {
	case !p.InUse:
		out.Note = s.notUsed(key)
	case !p.Known:
		out.Note = s.obstacle(key)
	}
	return http.StatusOK, out
}

// obstacle returns what keeps new versions of a key from coming; empty: nothing is known.
func (s *Server) obstacle(key xds.Key) string {
	k, ok := s.opts.Keys.Key(key)
	if !ok {
		return ""
	}
	switch up := &k.Upstream; {
	case k.Refused != "":
		return k.Refused
	case up.Failed && !up.Connected:
		return "no origin answers: " + up.Error
	case !up.SilentSince.IsZero():
		return fmt.Sprintf("origin %s accepts streams but does not answer", up.Origin)
	}
	for _, o := range s.opts.Origins.Origins() {
		if o.Name == k.Upstream.Origin && len(o.Faults) > 0 {
			return fmt.Sprintf("origin %s has files that cannot be used: %s", o.Name, strings.Join(o.Faults, "; "))
		}
	}
	return ""
}

// parseType returns the type with a URL or short name.
func parseType(name string) (xds.TypeURL, error) {
	t, ok := xds.ParseType(name)
	if !ok {
		return "", fmt.Errorf("type: must be a URL or a short name such as CDS, but is %q", name)
	}
	return t, nil
}
