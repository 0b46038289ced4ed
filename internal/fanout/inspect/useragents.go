package inspect

import (
	"cmp"
	"slices"
)

// UserAgent is a client's program, as its node says. The zero value means that it does not say.
type UserAgent struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// UserAgentCount is how many clients are one program.
type UserAgentCount struct {
	UserAgent
	Clients int `json:"clients"`
	// Other is not 0 in the last row if that row sums up this many further user agents.
	Other int `json:"other,omitempty"`
}

// maxUserAgents bounds the user agents with a row of their own, because clients choose the texts.
const maxUserAgents = 50

// UserAgents counts the clients by user agent, the most frequent first. It returns at most
// maxUserAgents rows, and one more for all others.
func (i *Inspector) UserAgents() []UserAgentCount {
	clients := make(map[UserAgent]int)
	for _, c := range i.all() {
		clients[c.UserAgent()]++
	}
	out := make([]UserAgentCount, 0, len(clients))
	for agent, n := range clients {
		out = append(out, UserAgentCount{UserAgent: agent, Clients: n})
	}
	slices.SortFunc(out, func(a, b UserAgentCount) int {
		return cmp.Or(cmp.Compare(b.Clients, a.Clients), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version))
	})
	if len(out) <= maxUserAgents {
		return out
	}
	rest := UserAgentCount{Other: len(out) - maxUserAgents}
	for _, c := range out[maxUserAgents:] {
		rest.Clients += c.Clients
	}
	return append(out[:maxUserAgents:maxUserAgents], rest)
}
