package inspect

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"xdsrelay/internal/xds"
)

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
