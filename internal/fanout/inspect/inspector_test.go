package inspect

import (
	"maps"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"xdsrelay/internal/xds"
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

// waiter is a client of one type.
type waiter struct {
	Client
	state TypeState
}

func (w waiter) AppendTypeStates(_ *Survey, _ func(xds.Key, xds.TypeURL) bool, to []TypeState) []TypeState {
	return append(to, w.state)
}

// Clients that have waited for more than 30 s for the origin's answer are counted by key and type.
func TestP57_WaitingClientsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		edge, web := xds.NewKey("edge"), xds.NewKey("web")
		client := func(key xds.Key, typ xds.TypeURL, state string, waits time.Duration) Client {
			s := TypeState{Key: key, Type: typ, State: state}
			if waits >= 0 {
				s.WaitingSince = began.Add(waits)
			}
			return waiter{state: s}
		}
		i := New(func() []Client {
			return []Client{
				client(edge, xds.EndpointType, StateNotSent, time.Second), client(edge, xds.EndpointType, StateNotSent, 0),
				client(edge, xds.EndpointType, StateNotSent, 20*time.Second), client(edge, xds.ClusterType, StateSynced, -1),
				client(web, xds.EndpointType, StateUnconfirmed, 20*time.Second), client(web, xds.RouteType, StateNotSent, -1),
			}
		})
		if got := i.Waiting(); len(got) > 0 {
			t.Errorf("before the first count: %v", got)
		}
		for _, c := range []struct {
			at   time.Duration
			want map[KeyType]Waiting
		}{
			{30 * time.Second, map[KeyType]Waiting{}},
			{35 * time.Second, map[KeyType]Waiting{{edge, xds.EndpointType}: {2, began}}},
			{60 * time.Second, map[KeyType]Waiting{{edge, xds.EndpointType}: {3, began}, {web, xds.EndpointType}: {1, began.Add(20 * time.Second)}}},
		} {
			time.Sleep(time.Until(began.Add(c.at)))
			i.Count()
			if got := i.Waiting(); !maps.Equal(got, c.want) {
				t.Errorf("after %v: %v, want %v", c.at, got, c.want)
			}
		}
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
