package admin

import (
	"fmt"
	"net/http"

	"xdsrelay/internal/xds"
)

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
	return http.StatusOK, s.opts.Keys.Progress(key, typ, q.Get("version"), q.Get("mark"), s.opts.Clients.Standings)
}

// typeCalled is the type that people mean: by its URL or its short name.
func typeCalled(name string) (xds.TypeURL, error) {
	t, ok := xds.ParseType(name)
	if !ok {
		return "", fmt.Errorf("type: %q is no resource type: wants a URL, or a short name such as CDS", name)
	}
	return t, nil
}
