package grpcadmin

import (
	"testing"

	"google.golang.org/grpc"
	channelzpb "google.golang.org/grpc/channelz/grpc_channelz_v1"

	"xdsrelay/internal/xdstest"
)

// Without channelz, grpc keeps no state of what is made meanwhile.
func TestCountForChannelz(t *testing.T) {
	client := channelzpb.NewChannelzClient(dial(t, newServerFixture(t, nil).addr))
	servers := func() int {
		t.Helper()
		got, err := client.GetServers(xdstest.Context(t), &channelzpb.GetServersRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return len(got.Server)
	}
	before := servers()
	defer CountForChannelz(true)
	for _, c := range []struct {
		on   bool
		want int
	}{{false, before}, {true, before + 1}} {
		CountForChannelz(c.on)
		s := grpc.NewServer()
		if n := servers(); n != c.want {
			t.Errorf("channelz %v: %d servers, want %d", c.on, n, c.want)
		}
		s.Stop()
	}
}
