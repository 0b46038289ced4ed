package connections

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPoolClosesIdleSurplusConnections(t *testing.T) {
	p, err := New(Options{Target: "127.0.0.1:1", Balance: "pick_first", Credentials: insecure.NewCredentials(), Limit: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var leased []*Connection
	for range 6 {
		c, err := p.Lease()
		if err != nil {
			t.Fatal(err)
		}
		leased = append(leased, c)
	}
	if len(p.conns) != 3 {
		t.Fatalf("%d connections for 6 leases of 2", len(p.conns))
	}
	p.conns[0].ready = true
	for _, i := range []int{2, 3, 4} { // the second is empty, the third has room
		p.Release(leased[i])
	}
	if c, _ := p.Lease(); c != leased[4] {
		t.Error("a lease on an empty connection while another has room")
	}
	p.Trim(time.Now())
	if len(p.conns) != 3 {
		t.Error("closed at once")
	}
	p.Trim(time.Now().Add(IdleFor))
	if len(p.conns) != 2 {
		t.Errorf("%d connections, want 2", len(p.conns))
	}
	for _, i := range []int{0, 1, 4, 5} {
		p.Release(leased[i])
	}
	p.Trim(time.Now().Add(IdleFor))
	if len(p.conns) != 1 || p.conns[0] != leased[0] {
		t.Errorf("%d connections, want the first one", len(p.conns))
	}
	p.Close()
	if _, err := p.Lease(); err == nil {
		t.Error("a lease of a closed pool")
	}
}

// A connection that cannot connect gets no streams, and is closed once it has none. The first one is
// kept: while it is not ready no stream is opened.
func TestPoolLeavesOutAConnectionThatCannotConnect(t *testing.T) {
	refused := func(context.Context, string) (net.Conn, error) { return nil, errors.New("refused") }
	p, err := New(Options{Target: "passthrough:///o", Balance: "round_robin", Credentials: insecure.NewCredentials(), Limit: 2, DialEvery: time.Hour, Dialer: refused})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var leased []*Connection
	for range 3 {
		c, err := p.Lease()
		if err != nil {
			t.Fatal(err)
		}
		leased = append(leased, c)
		c.CC.Connect()
	}
	first, second := leased[0], leased[2]
	p.conns[0].ready = true
	for _, c := range []*Connection{first, second} {
		for s := c.CC.GetState(); s != connectivity.TransientFailure; s = c.CC.GetState() {
			c.CC.WaitForStateChange(t.Context(), s)
		}
	}
	if third, _ := p.Lease(); third == second || third == first {
		t.Error("a lease on a connection that cannot connect")
	}
	p.Release(second)
	if len(p.conns) != 2 || p.conns[0] != first || p.conns[1] == second {
		t.Errorf("%d connections are left", len(p.conns))
	}
	p.Release(first)
	if c, _ := p.Lease(); c != first {
		t.Error("the first connection gets no stream")
	}
}

// The listener never accepts, so there is no connection to report.
func TestP53_OriginThatCannotBeReachedInTime(t *testing.T) {
	o := Options{Target: "127.0.0.1:1", Balance: "pick_first", Credentials: insecure.NewCredentials()}
	d, err := o.connection(o.Balance)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.CC.Close() }()
	if err := d.Unopened(5 * time.Second); err.Error() != "not connected within 5s" {
		t.Error(err)
	}
}

// addresses is a resolver.ClientConn that accepts every result.
type addresses struct{ resolver.ClientConn }

func (addresses) UpdateState(resolver.State) error { return nil }
func (addresses) ReportError(error)                {}

// The relay remembers why the last lookup gave no address. gRPC's resolver gives an empty list for
// a name that does not exist.
func TestResolversErrorIsKept(t *testing.T) {
	o := Options{Target: "passthrough:///o", Balance: "pick_first", Credentials: insecure.NewCredentials()}
	d, err := o.connection(o.Balance)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.CC.Close() }()
	w := watchedLookups{addresses{}, "nowhere.invalid", d}
	is := func(want string) {
		t.Helper()
		got := d.Explain(status.Error(codes.Unavailable, "no children to pick from")).Error()
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	w.ReportError(errors.New("lookup nowhere.invalid: server misbehaving"))
	is("lookup nowhere.invalid: server misbehaving")
	if err := w.UpdateState(resolver.State{}); err != nil {
		t.Error(err)
	}
	is("lookup nowhere.invalid: no such host")
	if err := w.UpdateState(resolver.State{Addresses: []resolver.Address{{Addr: "127.0.0.1:1"}}}); err != nil {
		t.Error(err)
	}
	is("open stream: rpc error: code = Unavailable desc = no children to pick from")
}
