package admin

import (
	"net/http"
	"strconv"

	"xdsrelay/internal/admin/jsonyaml"
)

type format struct {
	contentType string
	encode      func(v any) ([]byte, error)
}

var (
	jsonFormat = &format{"application/json", jsonyaml.Indented}
	yamlFormat = &format{"application/yaml", jsonyaml.YAML}
)

// formats are the values of ?format=.
var formats = map[string]*format{"": jsonFormat, "json": jsonFormat, "yaml": yamlFormat}

// failure is the answer to a request that cannot be answered.
type failure struct {
	Error string `json:"error"`
}

func fail(status int, message string) (int, any) { return status, failure{message} }

type answer struct {
	status int
	as     *format
	body   []byte
}

// encode encodes a whole answer before anything is sent, so that an encoding error still changes
// the status. f is nil for an unknown format.
func (s *Server) encode(f *format, status int, v any) answer {
	if f == nil {
		f = jsonFormat
	}
	b, err := f.encode(v)
	if err != nil {
		s.opts.Log.Error("cannot encode an admin answer", "error", err)
		return answer{http.StatusInternalServerError, jsonFormat, []byte(`{"error": "the relay cannot encode the answer"}` + "\n")}
	}
	return answer{status, f, b}
}

func (s *Server) send(w http.ResponseWriter, a answer) {
	h := w.Header()
	h.Set("Content-Type", a.as.contentType)
	h.Set("Content-Length", strconv.Itoa(len(a.body)))
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // an error means that the client has gone
}

// write encodes and sends. Use it for answers that cost little.
func (s *Server) write(w http.ResponseWriter, f *format, status int, v any) {
	s.send(w, s.encode(f, status, v))
}
