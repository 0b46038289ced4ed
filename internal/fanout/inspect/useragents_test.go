package inspect

import (
	"slices"
	"strconv"
	"testing"
)

// program is a client with a user agent.
type program struct {
	Client
	agent UserAgent
}

func (p program) UserAgent() UserAgent { return p.agent }

func TestUserAgents(t *testing.T) {
	var all []Client
	add := func(n int, name, version string) {
		for range n {
			all = append(all, program{agent: UserAgent{name, version}})
		}
	}
	i := New(func() []Client { return all })
	if got := i.UserAgents(); got == nil || len(got) != 0 {
		t.Errorf("without clients: %v", got)
	}
	add(1, "", "")
	add(2, "gRPC Go", "1.76.0")
	add(3, "envoy", "1.40.0")
	add(2, "envoy", "1.39.1")
	row := func(n int, name, version string) UserAgentCount {
		return UserAgentCount{UserAgent: UserAgent{name, version}, Clients: n}
	}
	want := []UserAgentCount{row(3, "envoy", "1.40.0"), row(2, "envoy", "1.39.1"), row(2, "gRPC Go", "1.76.0"), row(1, "", "")}
	if got := i.UserAgents(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for n := range 46 { // 50 with the four above
		add(4, "other", strconv.Itoa(n))
	}
	if got := i.UserAgents(); len(got) != 50 || got[49] != row(1, "", "") {
		t.Errorf("50 user agents: %d rows, the last is %v", len(got), got[len(got)-1])
	}
	add(4, "other", "46")
	add(4, "other", "47")
	got := i.UserAgents()
	if rest := (UserAgentCount{Clients: 3, Other: 2}); len(got) != 51 || got[50] != rest || got[49] != row(2, "envoy", "1.39.1") {
		t.Errorf("52 user agents: %v", got[48:])
	}
}
