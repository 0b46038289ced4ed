package grpcadmin

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	channelzpb "google.golang.org/grpc/channelz/grpc_channelz_v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/xdstest"
)

// calls makes one call of each guarded service.
func calls(ctx context.Context, cc *grpc.ClientConn) map[string]error {
	out := map[string]error{}
	_, out["csds"] = statusv3.NewClientStatusDiscoveryServiceClient(cc).FetchClientStatus(ctx, &statusv3.ClientStatusRequest{})
	st, err := statusv3.NewClientStatusDiscoveryServiceClient(cc).StreamClientStatus(ctx)
	if err == nil {
		if err = st.Send(&statusv3.ClientStatusRequest{}); err == nil || err == io.EOF {
			_, err = st.Recv()
		}
	}
	out["csds stream"] = err
	_, out["channelz"] = channelzpb.NewChannelzClient(cc).GetServers(ctx, &channelzpb.GetServersRequest{})
	_, out["health list"] = grpc_health_v1.NewHealthClient(cc).List(ctx, &grpc_health_v1.HealthListRequest{})
	re, err := reflectionpb.NewServerReflectionClient(cc).ServerReflectionInfo(ctx)
	if err == nil {
		err = re.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
		if err == nil || err == io.EOF {
			_, err = re.Recv()
		}
	}
	out["reflection"] = err
	return out
}

func all(t *testing.T, got map[string]error, want codes.Code) {
	t.Helper()
	for call, err := range got {
		if status.Code(err) != want {
			t.Errorf("%s: %v, want %v", call, err, want)
		}
	}
}

func bearer(ctx context.Context, token string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
}

// Every service needs the token, and a new one after a change.
func TestToken(t *testing.T) {
	r := newServerFixture(t, nil)
	cc := dial(t, r.addr)
	all(t, calls(xdstest.Context(t), cc), codes.OK)
	r.gate.set(func() { r.gate.token = "secret" })
	all(t, calls(xdstest.Context(t), cc), codes.Unauthenticated)
	all(t, calls(bearer(xdstest.Context(t), "other"), cc), codes.Unauthenticated)
	all(t, calls(bearer(bearer(xdstest.Context(t), "other"), "secret"), cc), codes.Unauthenticated) // two values
	all(t, calls(bearer(xdstest.Context(t), "secret"), cc), codes.OK)
	if _, err := grpc_health_v1.NewHealthClient(cc).Check(xdstest.Context(t), &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Errorf("a probe has no token: %v", err)
	}
	w, err := grpc_health_v1.NewHealthClient(cc).Watch(xdstest.Context(t), &grpc_health_v1.HealthCheckRequest{})
	if err == nil {
		_, err = w.Recv()
	}
	if err != nil {
		t.Errorf("a probe that watches has none either: %v", err)
	}
}

// A stream does not outlive its token, which is checked for each answer.
func TestTokenOfAnOpenStream(t *testing.T) {
	r := newServerFixture(t, nil)
	r.gate.set(func() { r.gate.token = "old" })
	cc := dial(t, r.addr)
	csds := xdstest.Must(statusv3.NewClientStatusDiscoveryServiceClient(cc).StreamClientStatus(bearer(xdstest.Context(t), "old")))(t)
	known := xdstest.Must(reflectionpb.NewServerReflectionClient(cc).ServerReflectionInfo(bearer(xdstest.Context(t), "old")))(t)
	ask := map[string]func() error{
		"csds": func() error {
			if err := csds.Send(&statusv3.ClientStatusRequest{}); err != nil {
				return err
			}
			_, err := csds.Recv()
			return err
		},
		"reflection": func() error {
			if err := known.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}); err != nil {
				return err
			}
			_, err := known.Recv()
			return err
		},
	}
	for _, want := range []codes.Code{codes.OK, codes.Unauthenticated} {
		for name, of := range ask {
			if err := of(); status.Code(err) != want {
				t.Errorf("%s: %v, want %v", name, err, want)
			}
		}
		r.gate.set(func() { r.gate.token = "new" })
	}
}

// Without a token another host name is refused.
func TestNames(t *testing.T) {
	r := newServerFixture(t, nil)
	r.gate.set(func() { r.gate.names = map[string]bool{r.addr: true} })
	all(t, calls(xdstest.Context(t), dial(t, r.addr)), codes.OK)
	all(t, calls(xdstest.Context(t), dial(t, r.addr, grpc.WithAuthority("evil.example"))), codes.PermissionDenied)
}

// All services are registered, and reflection lists them.
func TestServices(t *testing.T) {
	r := newServerFixture(t, nil)
	names := r.srv.Services()
	slices.Sort(names)
	want := "envoy.service.status.v3.ClientStatusDiscoveryService grpc.channelz.v1.Channelz grpc.health.v1.Health " +
		"grpc.reflection.v1.ServerReflection grpc.reflection.v1alpha.ServerReflection"
	if got := strings.Join(names, " "); got != want {
		t.Fatal(got)
	}
	st := xdstest.Must(reflectionpb.NewServerReflectionClient(dial(t, r.addr)).ServerReflectionInfo(xdstest.Context(t)))(t)
	// Reflection knows the types in an Any too.
	for _, name := range append(names, "envoy.config.cluster.v3.Cluster") {
		xdstest.NoError(t, st.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: name}}))
		m, err := st.Recv()
		if err != nil || len(m.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
			t.Errorf("%s: %v %v", name, m, err)
		}
	}
}

// With TLS a plaintext connection gets no answer, and HTTP/2 works.
func TestTLS(t *testing.T) {
	ca := tlstest.NewAuthority(t)
	cert := ca.Pair(t, tlstest.CN("relay"), tlstest.Loopback()).TLS(t)
	r := newServerFixture(t, &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"}})
	all(t, calls(xdstest.Context(t), dial(t, r.addr, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: ca.Pool()})))), codes.OK)
	all(t, calls(xdstest.Context(t), dial(t, r.addr)), codes.Unavailable)
}

// Connections in their handshake do not keep Run from returning.
func TestEndingWaitsForNoHandshake(t *testing.T) {
	r := newServerFixture(t, nil)
	c := xdstest.Must(net.Dial("tcp", r.addr))(t)
	defer func() { _ = c.Close() }()
	all(t, calls(xdstest.Context(t), dial(t, r.addr)), codes.OK) // c was accepted before
	began := time.Now()
	r.stop()
	if took := time.Since(began); took > 3*grace {
		t.Errorf("ending took %s", took)
	}
}

// A stream that does not end does not keep Run from returning.
func TestEndingWaitsForNobody(t *testing.T) {
	r := newServerFixture(t, nil)
	st := xdstest.Must(r.csds().StreamClientStatus(xdstest.Context(t)))(t)
	xdstest.NoError(t, st.Send(&statusv3.ClientStatusRequest{}))
	xdstest.Must(st.Recv())(t)
	began := time.Now()
	r.stop()
	if took := time.Since(began); took > 2*grace {
		t.Errorf("ending took %s", took)
	}
	if _, err := st.Recv(); status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
}

// Without a token an address that other hosts can reach is refused.
func TestAddress(t *testing.T) {
	r := newServerFixture(t, nil)
	l := xdstest.Must(net.Listen("tcp", "0.0.0.0:0"))(t)
	if err := r.srv.Run(t.Context(), l); err == nil || !strings.Contains(err.Error(), "not a loopback address") {
		t.Error(err)
	}
	if _, err := l.Accept(); err == nil {
		t.Error("the listener is still open")
	}
}

// New fails without a required option.
func TestOptions(t *testing.T) {
	if _, err := New(Options{}); err == nil {
		t.Error("made of nothing")
	}
}
