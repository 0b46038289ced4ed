package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"xdsrelay/internal/admin/jsonyaml"
	"xdsrelay/internal/admin/overview"
)

// eventTimeout bounds the time in which a page has to read an event.
const eventTimeout = 10 * time.Second

// events sends the newest overview to each open page as server-sent events. A slow page gets the
// newest one whenever it has read the one before; the server closes a page that does not read.
func (s *Server) events() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.hub.Open() {
			s.write(w, jsonFormat, http.StatusServiceUnavailable, failure{fmt.Sprintf("events: too many open pages: at most %d", overview.MaxPages)})
			return
		}
		defer s.hub.Close()
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("X-Accel-Buffering", "no") // tells proxies not to buffer
		if r.Method == http.MethodHead {
			return
		}
		out := http.NewResponseController(w)
		var seen *overview.Event
		var said string
		for {
			e, err := s.hub.Next(r.Context(), seen)
			if err != nil || !s.Authorized(r.Header.Get("Authorization"), r.RemoteAddr) { // the token may have changed
				return
			}
			// A comment line without an event detects a page that has gone.
			message := ":\n\n"
			if data := string(e.Data); data != said {
				message, said = "event: fleet\nid: "+e.Made.UTC().Format(time.RFC3339Nano)+"\ndata: "+data+"\n\n", data
			}
			seen = e
			_ = out.SetWriteDeadline(time.Now().Add(eventTimeout)) // fails only on a server without deadlines
			if _, err := w.Write([]byte(message)); err != nil || out.Flush() != nil {
				return
			}
		}
	})
}

var errBusy = errors.New("the relay is busy with other requests")

func (s *Server) relay() overview.Relay {
	return overview.Relay{Name: s.opts.Name, Version: s.opts.Version, State: phases[s.phase.Load()], Started: s.started, InCluster: s.opts.Members != nil}
}

// overview computes an event when no other request reads. It returns the time of the computation,
// without the wait.
func (s *Server) overview(ctx context.Context) ([]byte, time.Duration, error) {
	release, ok := s.AcquireRead(ctx)
	if !ok {
		return nil, 0, errBusy
	}
	defer release()
	began := time.Now()
	keys, origins := s.keys(), s.opts.Origins.Origins()
	in := overview.In{
		Relay:    s.relay(),
		Problems: s.problems(keys, origins),
		Totals:   overview.ReadTotals(s.opts.Metrics),
		Clients:  s.opts.Clients.ClientsAfter(0),
		Keys:     keys,
		Origins:  origins,
	}
	b, err := jsonyaml.JSON(overview.Of(&in))
	if err != nil {
		return nil, 0, fmt.Errorf("overview: %w", err)
	}
	return b[:len(b)-1], time.Since(began), nil // without the newline
}

// listHistory answers with all samples: there are at most as many as fifteen minutes have.
func (s *Server) listHistory(*http.Request) (int, any) {
	return http.StatusOK, struct {
		Items []overview.Sample `json:"items"`
	}{s.sampler.Samples()}
}
