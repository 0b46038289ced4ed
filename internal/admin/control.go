package admin

import (
	"log/slog"
	"net/http"
	"strings"
)

// drain tells the relay to drain, and does not wait: the relay's end also ends this connection.
func (s *Server) drain(r *http.Request) (int, any) {
	if s.phase.Swap(draining) != draining {
		s.opts.Log.Info("drain requested", "by", r.RemoteAddr)
		s.opts.Drain()
	}
	return http.StatusAccepted, map[string]string{"state": phases[draining]}
}

var levels = map[string]slog.Level{
	"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
}

func levelName(l slog.Level) string { return strings.ToLower(l.String()) }

// logging is the answer to /logging.
type logging struct {
	Level string `json:"level"`
}

func (s *Server) level(*http.Request) (int, any) {
	return http.StatusOK, logging{levelName(s.opts.Level.Level())}
}

func (s *Server) setLevel(r *http.Request) (int, any) {
	to, ok := levels[strings.ToLower(r.URL.Query().Get("level"))]
	if !ok {
		return fail(http.StatusBadRequest, "level: must be debug, info, warn or error")
	}
	was := s.opts.Level.Level()
	s.opts.Level.Set(to)
	s.opts.Log.Info("log level changed", "from", levelName(was), "to", levelName(to), "by", r.RemoteAddr)
	return http.StatusOK, logging{levelName(to)}
}

// reload makes the relay read its configuration file again. The status of a rejected file is 422.
func (s *Server) reload(r *http.Request) (int, any) {
	force, err := boolParam(r, "force")
	if err != nil {
		return fail(http.StatusBadRequest, err.Error())
	}
	var out Reload
	followed := false
	if s.opts.Reload != nil {
		s.opts.Log.Info("reload requested", "by", r.RemoteAddr, "force", force)
		out, followed = s.opts.Reload(force)
	}
	if !followed {
		return fail(http.StatusConflict, "reload: the relay follows no configuration file")
	}
	for _, list := range []*[]string{&out.Changed, &out.NeedsRestart, &out.Faults} {
		*list = append([]string{}, *list...) // not null in JSON
	}
	if out.Result == ReloadRejected {
		return http.StatusUnprocessableEntity, out
	}
	return http.StatusOK, out
}
