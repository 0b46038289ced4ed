package check

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
)

// What an event tells.
type What string

const (
	// Run is the first: Seed, and of each relay in Upstream the variant that
	// it speaks to origins.
	Run What = "run"
	// Publish: Origin is about to have Resources of Type for Key, by name; an
	// empty content is a removal.
	Publish What = "publish"
	// Published: Origin has all that was published for Key up to event Upto.
	Published What = "published"
	// Began: a Process of Relay is about to be started; Store if it has one.
	Began What = "began"
	// Ending: it is about to be killed. Who is touched from here on may be so by that.
	Ending What = "ending"
	// Ended: it has ended. With an Error nobody had told it to.
	Ended What = "ended"
	// Opening: Client is about to open Stream to Relay, with a node of Key, in
	// Variant. Fresh: it remembers nothing of its streams before.
	Opening What = "opening"
	// Ask: a request is about to be sent. In SotW Names are all; in incremental
	// Names are subscribed and Dropped unsubscribed.
	Ask What = "ask"
	// Receipt: a response, before the client judges it. Process is of the relay
	// that says to have sent it. Refs are the clusters that a route leads to.
	Receipt What = "receipt"
	// Closed: the stream has ended, with Error. Asked: the client ended it.
	// Silent: it could not be opened. Conn is its connection.
	Closed What = "closed"
	// Touched: a fault touches connection Conn.
	Touched What = "touched"
	// Fault is for people: what was done, to what.
	Fault What = "fault"
	// Holds: what Client holds of Type at a rest, as Resources.
	Holds What = "holds"
	// Rest: all that is wrong with what clients hold is told by the events Holds
	// since the last one.
	Rest What = "rest"
	// Stored: at the last Rest, the store of Relay's Process had all that its
	// clients held.
	Stored What = "stored"
	// Complaint: Client saw the relay break the protocol, as Error says.
	Complaint What = "complaint"
)

// Event is a line of a history. Which fields it has, What says.
type Event struct {
	N    int           `json:"n"` // its place in the order, from 1
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

// Add gives an event its place and its time, and writes it. It returns the
// place. What cannot be written is told by Flush.
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

// Flush writes what is buffered, and returns the first error of all.
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
