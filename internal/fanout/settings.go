package fanout

import (
	"time"

	"xdsrelay/config"
)

// Settings are what can change while the server runs. A Settings in force does not change: code
// that needs two values of the same moment loads it once.
type Settings struct {
	// AckTimeout is how long the next response waits for the ACK of the last one (P19).
	AckTimeout time.Duration
	// LongPoll is how long a REST poll without news is held (P71).
	LongPoll time.Duration
	// RESTBytes bounds the bodies of REST polls that are being read, together.
	RESTBytes int64
	// Limits; 0: none. Connections, StreamsPerConnection and RequestBytes take effect when the
	// listeners and the grpc server are made. Later changes have no effect.
	Limits config.Limits
}

// settings returns the settings in force.
func (s *Server) settings() *Settings { return s.currentSettings.Load() }

// Reconfigure puts other settings in force. A stream that exceeds a new limit stays until it requests
// more. A SotW request counts as requesting everything anew.
func (s *Server) Reconfigure(to Settings) {
	s.currentSettings.Store(&to)
	s.admission.Reconfigure(to.Limits)
}
