package fanout

import (
	"time"

	"xdsrelay/config"
)

// Settings are what can change while the server runs. One is not changed once it
// is in force: who needs two values that belong together loads it once.
type Settings struct {
	// AckTimeout is how long an unanswered response holds back the next (P19).
	AckTimeout time.Duration
	// LongPoll is how long a REST poll without news is held (P71).
	LongPoll time.Duration
	// Limits; 0: none. Connections, StreamsPerConnection and RequestBytes are those with
	// which the listeners and the grpc server were made; other values have no effect.
	Limits config.Limits
}

// settings are those in force.
func (s *Server) settings() *Settings { return s.now.Load() }

// Reconfigure puts other settings in force, for all that comes from now on. No
// stream is ended by a limit that it would exceed now, until it asks for more: in
// state of the world each request asks for all.
func (s *Server) Reconfigure(to Settings) {
	s.now.Store(&to)
	s.admission.Reconfigure(to.Limits)
}
