package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"xdsrelay/internal/admin/overview"
)

// eventTimeout is how long a page may take for one event.
const eventTimeout = 10 * time.Second

// events has the newest of the fleet for each open page, as server-sent events.
// A page that reads slowly is told the newest whenever it has read; one that
// does not read is cut.
func (s *Server) events() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.hub.Open() {
			s.write(w, jsonFormat, http.StatusServiceUnavailable, failure{fmt.Sprintf("%d pages are open already", overview.MaxPages)})
			return
		}
		defer s.hub.Close()
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("X-Accel-Buffering", "no") // by a proxy
		if r.Method == http.MethodHead {
			return
		}
		out := http.NewResponseController(w)
		var seen *overview.Event
		var said string
		for {
			e, err := s.hub.Next(r.Context(), seen)
			if err != nil || !s.Authorized(r.Header.Get("Authorization")) { // the token may be another by now
				return
			}
			// A line without an event finds out whether the page is still there.
			message := ":\n\n"
			if data := string(e.Data); data != said {
				message, said = "event: fleet\nid: "+e.Made.UTC().Format(time.RFC3339Nano)+"\ndata: "+data+"\n\n", data
			}
			seen = e
			_ = out.SetWriteDeadline(time.Now().Add(eventTimeout)) // of a server without deadlines there is none to set
			if _, err := w.Write([]byte(message)); err != nil || out.Flush() != nil {
				return
			}
		}
	})
}

var errBusy = errors.New("other requests took too long")

// relay is what pages are told of the relay itself.
func (s *Server) relay() overview.Relay {
	r := overview.Relay{
		Name: s.opts.Name, Version: s.opts.Version, State: phases[s.phase.Load()], Started: s.started,
		Stale: s.opts.Metrics.Stale.Value(),
	}
	if s.opts.Configuration != nil {
		c := s.opts.Configuration()
		r.NeedsRestart = c.NeedsRestart
		for _, f := range c.NotTaken {
			r.NotTaken = append(r.NotTaken, f.Of+": "+f.Error)
		}
		if c.Rejected != nil {
			r.Faults = c.Rejected.Faults
		}
	}
	return r
}

// overview computes what pages are told, when it is its turn to read, and says how
// long that took.
func (s *Server) overview(ctx context.Context) ([]byte, time.Duration, error) {
	give, ok := s.Turn(ctx)
	if !ok {
		return nil, 0, errBusy
	}
	defer give()
	began := time.Now()
	in := overview.In{
		Relay:   s.relay(),
		Clients: s.opts.Clients.ClientsAfter(0),
		Keys:    s.keys(),
		Origins: []overview.Origin{},

		SentAway: s.opts.Clients.RecentRefusals(),
	}
	for _, o := range s.opts.Origins.Origins() {
		shown := show(o)
		in.Origins = append(in.Origins, overview.Origin{
			Name: shown.Name, Address: shown.Address, Away: shown.Away, AwaySince: shown.AwaySince,
			Streams: shown.Streams, Silent: shown.Silent, Error: shown.LastError, Faults: shown.Faults,
		})
	}
	b, err := marshal(overview.Of(&in), "")
	if err != nil {
		return nil, 0, fmt.Errorf("overview: %w", err)
	}
	return b[:len(b)-1], time.Since(began), nil // without the end of the line
}
