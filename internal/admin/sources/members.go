package sources

import (
	"time"

	"xdsrelay/internal/cluster"
)

// Member is an item of /members.
type Member struct {
	Name string `json:"name"`
	Self bool   `json:"self"` // the relay that was asked
	// State is alive, unusable, left or dead.
	State string `json:"state"`
	// Problem is why the member is unusable: it is alive, and can own no keys.
	Problem  string    `json:"problem,omitempty"`
	Ready    bool      `json:"ready"`
	Draining bool      `json:"draining"`
	Version  string    `json:"version"`
	Address  string    `json:"address"` // of its listener for members
	Compat   string    `json:"compat"`
	Since    time.Time `json:"since"` // of the State, as this relay noticed it
	*Load              // only this relay knows its own

	Place int `json:"-"` // by name
}

// Load is what a member serves.
type Load struct {
	KeysOwned    int `json:"keys_owned"`
	KeysFollowed int `json:"keys_followed"`
	KeysDirect   int `json:"keys_direct"` // of other members, and asked for at origins
	Streams      int `json:"streams"`     // of clients, and clients that poll
}

// Members returns the items of /members, by name. self is what this relay serves.
func Members(all []cluster.Member, self Load) []Member {
	out := make([]Member, len(all))
	for i, m := range all {
		out[i] = Member{Name: m.Name, Self: m.Self, State: string(m.State), Problem: m.Problem, Ready: m.Ready, Draining: m.Draining,
			Version: m.Version, Address: m.Address, Compat: m.Compat, Since: m.Since, Place: i}
		if m.Self {
			out[i].Load = &self
		}
	}
	return out
}
