package admin

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"xdsrelay/config"
	"xdsrelay/internal/admin/jsonyaml"
	"xdsrelay/internal/aggregator"
	"xdsrelay/internal/fanout"
)

// diffTime bounds the time in which a page of a diff is computed. A rule may be slow, and other
// requests wait meanwhile.
const diffTime = 2 * time.Second

// otherRules is the body of POST /explain/diff.
type otherRules struct {
	// Rules is the text of a rules file, as aggregation.file names one.
	Rules string `json:"rules"`
	// Unmatched is aggregation.unmatched; empty: reject.
	Unmatched string `json:"unmatched"`
	// ByToken says that the clients' tokens are part of their keys.
	ByToken bool `json:"by_token"`
	// Listeners are those of the configuration with these rules; none: admission is not compared.
	Listeners []listener `json:"listeners"`
}

// listener has the admission rules of the listener at an address.
type listener struct {
	Address  string `json:"address"`
	Identity string `json:"identity"`
	Secrets  string `json:"secrets"`
}

// move is a client that would have other keys.
type move struct {
	Stream   uint64   `json:"stream"`
	Node     string   `json:"node"`
	Peer     string   `json:"peer"`
	Identity string   `json:"identity,omitempty"`
	Types    []change `json:"types"`
}

// change is a type's key before and after; an empty one means that there is none.
type change struct {
	Type    string `json:"type"`
	From    string `json:"from,omitempty"`
	To      string `json:"to,omitempty"`
	Refused string `json:"refused,omitempty"` // why To is empty
}

// moves is a page of clients.
type moves struct {
	compared
	page
}

// compared is what a page of moves covers.
type compared struct {
	Checked int `json:"checked"` // clients that this page examined
	// Admission has the addresses of listeners with other rules for identity or Secrets. The
	// clients that those rules would end are not computed.
	Admission []string `json:"admission,omitempty"`
	// Elsewhere has the addresses at which there is no listener to compare with.
	Elsewhere []string `json:"elsewhere,omitempty"`
}

func (s *Server) diff(r *http.Request) (int, any) {
	limit, after, err := pageOf(r)
	number := uint64(0)
	if err == nil && after != "" {
		if number, err = strconv.ParseUint(after, 10, 64); err != nil {
			err = errPageToken
		}
	}
	if err != nil {
		return fail(http.StatusBadRequest, err.Error())
	}
	rules, listeners, err := readRules(r.Body)
	if err != nil {
		return fail(http.StatusBadRequest, err.Error())
	}
	out := moves{page: page{Items: []json.RawMessage{}}}
	out.Admission, out.Elsewhere = s.admission(listeners)
	size, until := 0, time.Now().Add(diffTime)
	for m := range s.opts.Clients.PreviewRekey(number, rules.Key) {
		if len(out.Items) == limit || size > maxPage || time.Now().After(until) {
			out.Next = pageToken(r, strconv.FormatUint(number, 10))
			break
		}
		number = m.Stream
		out.Checked++
		if len(m.Changes) == 0 {
			continue
		}
		b, err := jsonyaml.JSON(showMove(&m))
		if err != nil {
			return fail(http.StatusInternalServerError, fmt.Sprintf("stream %d: cannot be encoded: %v", m.Stream, err))
		}
		out.Items = append(out.Items, b)
		size += len(b)
	}
	return http.StatusOK, out
}

// admission returns the addresses of listeners whose admission rules differ from those in force,
// and of listeners that would need a restart.
func (s *Server) admission(listeners []listener) (others, elsewhere []string) {
	if s.opts.Admitted == nil {
		return nil, nil
	}
	for _, l := range listeners {
		identity, secrets, ok := s.opts.Admitted(l.Address)
		switch {
		case !ok:
			elsewhere = append(elsewhere, l.Address)
		case identity != l.Identity || secrets != l.Secrets:
			others = append(others, l.Address)
		}
	}
	return others, elsewhere
}

func readRules(body io.Reader) (*aggregator.Rules, []listener, error) {
	var in otherRules
	dec := json.NewDecoder(body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		return nil, nil, fmt.Errorf("body: must be a JSON object with rules, unmatched and listeners: %w", err)
	}
	in.Unmatched = cmp.Or(in.Unmatched, config.UnmatchedReject)
	if in.Unmatched != config.UnmatchedReject && in.Unmatched != config.UnmatchedNode {
		return nil, nil, fmt.Errorf("unmatched: must be %s or %s, but is %q", config.UnmatchedReject, config.UnmatchedNode, in.Unmatched)
	}
	rules, err := aggregator.CompileText("rules", []byte(in.Rules), in.Unmatched)
	if err == nil && in.ByToken {
		rules.ByToken()
	}
	return rules, in.Listeners, err
}

func showMove(m *fanout.RekeyPreview) move {
	out := move{Stream: m.Stream, Node: m.Node, Peer: m.Peer, Identity: m.Identity}
	for _, c := range m.Changes {
		x := change{Type: string(c.Type), From: c.From.String(), To: c.To.String()}
		if c.Refused != nil {
			x.Refused = c.Refused.Error()
		}
		out.Types = append(out.Types, x)
	}
	return out
}
