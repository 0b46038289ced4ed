package admin

import "net/http"

// The phases of the relay, in order.
const (
	starting int32 = iota
	serving
	draining
)

var phases = [...]string{starting: "starting", serving: "serving", draining: "draining"}

// SetReady changes the phase: with true to serving, with false to draining. The relay never leaves
// draining.
func (s *Server) SetReady(ready bool) {
	if ready {
		s.phase.CompareAndSwap(starting, serving)
	} else {
		s.phase.CompareAndSwap(serving, draining)
	}
}

// readiness is the answer to /ready.
type readiness struct {
	Ready bool   `json:"ready"`
	State string `json:"state"`
}

func (s *Server) ready(*http.Request) (int, any) {
	now := s.phase.Load()
	out := readiness{Ready: now == serving, State: phases[now]}
	if !out.Ready {
		return http.StatusServiceUnavailable, out
	}
	return http.StatusOK, out
}

func (s *Server) live(*http.Request) (int, any) {
	return http.StatusOK, map[string]bool{"live": true}
}
