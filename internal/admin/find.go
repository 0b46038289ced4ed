package admin

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"xdsrelay/internal/fanout/inspect"
)

// maxFound bounds the keys, and the nodes, that a search returns. maxFoundName bounds the names
// that it examines, in bytes.
const (
	maxFound     = 12
	maxFoundName = 1024
)

// found is the answer to /find.
type found struct {
	Keys  []string    `json:"keys"`
	Nodes []foundNode `json:"nodes"`
	More  bool        `json:"more"` // there are more matches
}

type foundNode struct {
	Node  string `json:"node"`
	Key   string `json:"key,omitempty"`
	State string `json:"state,omitempty"` // the worst of its types' states
}

// find searches for keys and nodes with a text in their names, in any case. Names that begin with
// it come first.
func (s *Server) find(r *http.Request) (int, any) {
	text := strings.ToLower(strings.TrimSpace(r.URL.Query().Get("text")))
	if text == "" || len(text) > maxFoundName {
		return fail(http.StatusBadRequest, fmt.Sprintf("text: must have 1 to %d bytes", maxFoundName))
	}
	out := found{Keys: []string{}, Nodes: []foundNode{}}
	var keys []string
	for _, k := range s.keys() {
		if has(k.Key, text) {
			keys = append(keys, k.Key)
		}
	}
	byPlace(keys, text, func(k string) string { return k })
	out.Keys = append(out.Keys, keys[:min(len(keys), maxFound)]...)
	var nodes []foundNode
	at := make(map[string]int)
	for c := range s.opts.Clients.ClientsAfter(0) {
		if !has(c.Node, text) {
			continue
		}
		i, ok := at[c.Node]
		if !ok {
			i = len(nodes)
			at[c.Node] = i
			nodes = append(nodes, foundNode{Node: c.Node})
		}
		for _, t := range c.Types {
			nodes[i].Key = cmp.Or(nodes[i].Key, t.Key)
			nodes[i].State = inspect.Worse(nodes[i].State, t.State)
		}
	}
	byPlace(nodes, text, func(n foundNode) string { return n.Node })
	out.Nodes = append(out.Nodes, nodes[:min(len(nodes), maxFound)]...)
	out.More = len(keys) > maxFound || len(nodes) > maxFound
	return http.StatusOK, out
}

func has(name, text string) bool {
	return len(name) <= maxFoundName && strings.Contains(strings.ToLower(name), text)
}

// byPlace orders by the position of the text in the name, then by name.
func byPlace[T any](all []T, text string, name func(T) string) {
	slices.SortFunc(all, func(a, b T) int {
		x, y := name(a), name(b)
		return cmp.Or(
			cmp.Compare(strings.Index(strings.ToLower(x), text), strings.Index(strings.ToLower(y), text)),
			cmp.Compare(x, y))
	})
}
