package cluster

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xdstest"

	"go.uber.org/goleak"
)

// Over real sockets, with keys from files: members join, learn a new key, and leave.
func TestOverTheNetwork(t *testing.T) {
	var relays []*relay
	for i, name := range []string{"a", "b", "c"} {
		metrics, err := telemetry.New(telemetry.Options{})
		if err != nil {
			t.Fatal(err)
		}
		r := &relay{log: new(xdstest.Log)}
		o := Options{
			Name: name, Label: "test", Address: "0.0.0.0:15020", Gossip: netip.MustParseAddrPort("127.0.0.1:0"), KeyFile: writeKeys(t, 1),
			Metrics: metrics, Log: r.log.Logger(),
		}
		if i > 0 {
			o.Join = []string{relays[0].Members()[0].gossip.String()}
		}
		if r.Cluster, err = New(o); err != nil {
			t.Fatal(err)
		}
		r.stop = xdstest.Run(t, r.Run)
		xdstest.Eventually(t, "gossip listens", func() error {
			if r.Members()[0].gossip.Port() == 0 {
				return errors.New("no port")
			}
			return nil
		})
		relays = append(relays, r)
	}
	see := func(r *relay, want string) {
		t.Helper()
		xdstest.Eventually(t, want, func() error {
			if got := lines(r.Members()); got != want {
				return fmt.Errorf("%s sees %q; its log:\n%s", r.options.Name, got, r.log)
			}
			return nil
		})
	}
	for _, r := range relays {
		see(r, "a alive, b alive, c alive")
		if m := r.Members()[0]; m.Address != "127.0.0.1:15020" {
			t.Errorf("%s has the address %s", m.Name, m.Address)
		}
		putKeys(t, r.options.KeyFile, 1, 2)
		xdstest.Eventually(t, "a second key", func() error {
			if n := len(r.keyring.GetKeys()); n != 2 {
				return fmt.Errorf("%d keys", n)
			}
			return nil
		})
	}
	relays[2].stop()
	see(relays[0], "a alive, b alive, c left")
	see(relays[1], "a alive, b alive, c left")
	relays[0].stop()
	relays[1].stop()
	xdstest.Eventually(t, "memberlist has ended", func() error { return goleak.Find() })
}
