package check

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
)

// What is the kind of an event.
type What string

const (
	// Run is the first event. It has the Seed, and in Upstream each relay's upstream variant.
	Run What = "run"
	// Publish: Origin is about to have Resources of Type for Key, by name. An empty content is a
	// removal.
	Publish What = "publish"
	// Published: Origin has everything that was published for Key up to event Upto.
	Published What = "published"
	// Began: a Process of Relay is about to be started. Store is set if it has one.
	Began What = "began"
	// Ending: the process is about to be killed. That may touch connections from here on.
	Ending What = "ending"
	// Ended: the process has ended. Error is set if that was not requested.
	Ended What = "ended"
	// Opening: Client is about to open Stream to Relay, with a node of Key, in Variant. Fresh: it
	// resumes no state of earlier streams.
	Opening What = "opening"
	// Ask: a request is about to be sent. In SotW Names is the whole list. In delta Names are
	// subscribed and Dropped are unsubscribed.
	Ask What = "ask"
	// Receipt: a response, before the client accepts or rejects it. Process is the relay's process
	// that the response names. Refs are the clusters of a route.
	Receipt What = "receipt"
	// Closed: the stream has ended, with Error. Asked: the client ended it. Silent: it could not be
	// opened. Conn is its connection.
	Closed What = "closed"
	// Touched: a fault touches connection Conn.
	Touched What = "touched"
	// Fault describes a fault in text.
	Fault What = "fault"
	// Holds: what Client holds of Type at a rest, as Resources.
	Holds What = "holds"
	// Rest: the events Holds since the last Rest have everything that is wrong with what clients
	// hold.
	Rest What = "rest"
	// Stored: at the last Rest, the store of Relay's Process had everything that its clients held.
	Stored What = "stored"
	// Complaint: Client saw the relay break the protocol, as Error says.
	Complaint What = "complaint"
)

// Event is a line of a history. Its What determines which fields are set.
type Event struct {
	N    int           `json:"n"` // its number, from 1
	T    time.Duration `json:"t"` // since the start
	What What          `json:"what"`

	Seed     uint64            `json:"seed,omitempty"`
	Upstream map[string]string `json:"upstream,omitempty"`

	Origin  string `json:"origin,omitempty"`
	Relay   string `json:"relay,omitempty"`
	Process int    `json:"process,omitempty"`
	Store   bool   `json:"store,omitempty"`
	Client  string `json:"client,omitempty"`
	Stream  int    `json:"stream,omitempty"`
	Variant string `json:"variant,omitempty"`
	Fresh   bool   `json:"fresh,omitempty"`

	Key       string              `json:"key,omitempty"`
	Type      string              `json:"type,omitempty"`
	Names     []string            `json:"names,omitempty"`
	Dropped   []string            `json:"dropped,omitempty"`
	Resources map[string]string   `json:"resources,omitempty"` // name to content
	Removed   []string            `json:"removed,omitempty"`
	Refs      map[string][]string `json:"refs,omitempty"`

	Upto   int    `json:"upto,omitempty"`
	Conn   string `json:"conn,omitempty"`
	Asked  bool   `json:"asked,omitempty"`
	Silent bool   `json:"silent,omitempty"`
	Error  string `json:"error,omitempty"`
	Text   string `json:"text,omitempty"`
}

// Writer writes a history, one event a line.
type Writer struct {
	now func() time.Time

	mu     sync.Mutex
	began  time.Time
	n      int
	out    *bufio.Writer
	failed error
}

// NewWriter writes to w. The history begins now.
func NewWriter(w io.Writer, now func() time.Time) *Writer {
	return &Writer{now: now, began: now(), out: bufio.NewWriterSize(w, 1<<16)}
}

// Add gives an event its number and time, and writes it. It returns the number. Flush returns
// errors of writing.
func (w *Writer) Add(e Event) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n++
	e.N, e.T = w.n, w.now().Sub(w.began)
	line, err := json.Marshal(e)
	if err == nil {
		_, err = w.out.Write(append(line, '\n'))
	}
	if err != nil && w.failed == nil {
		w.failed = fmt.Errorf("history: %w", err)
	}
	return e.N
}

// Flush writes the buffer, and returns the first error of all writes.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.out.Flush(); err != nil && w.failed == nil {
		w.failed = fmt.Errorf("history: %w", err)
	}
	return w.failed
}

// Read reads a history.
func Read(r io.Reader) ([]Event, error) {
	var out []Event
	dec := json.NewDecoder(r)
	dec.DisallowUnknownFields()
	for {
		var e Event
		if err := dec.Decode(&e); err == io.EOF {
			return out, nil
		} else if err != nil {
			return nil, fmt.Errorf("history: event %d: %w", len(out)+1, err)
		}
		out = append(out, e)
	}
}
