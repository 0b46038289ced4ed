package sources

import "xdsrelay/internal/cluster"

// Member is an item of /members.
type Member struct {
	cluster.Member
	*Load // only this relay knows its own

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
		out[i] = Member{Member: m, Place: i}
		if m.Self {
			out[i].Load = &self
		}
	}
	return out
}
