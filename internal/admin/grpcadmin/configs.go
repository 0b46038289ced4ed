package grpcadmin

import (
	"context"
	"errors"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/telemetry/redact"
	"xdsrelay/internal/xds"
)

var errLarge = errors.New("too large")

// configs makes the parts of an answer, client by client, and counts their bytes.
type configs struct {
	ctx      context.Context
	contents bool
	bytes    int
	shown    map[*xds.Resource]*anypb.Any // resources without their secrets
}

func newConfigs(ctx context.Context, contents bool) *configs {
	return &configs{ctx: ctx, contents: contents, shown: make(map[*xds.Resource]*anypb.Any)}
}

func (c *configs) clientConfig(streams []inspect.ClientConfig) (*statusv3.ClientConfig, error) {
	out := &statusv3.ClientConfig{ClientScope: redact.Text(streams[0].Node.ID) + " at " + streams[0].Peer}
	if node, err := streams[0].Node.Decode(); err == nil { // it was decoded when it came
		out.Node = redact.Message(node).(*corev3.Node)
	}
	c.bytes += proto.Size(out)
	for _, st := range streams {
		for _, typ := range st.Types() {
			for r := range typ.Resources {
				g := c.generic(typ.URL, &r)
				if c.bytes += proto.Size(g); c.bytes > maxAnswer {
					return nil, errLarge
				}
				if err := c.ctx.Err(); err != nil {
					return nil, err
				}
				out.GenericXdsConfigs = append(out.GenericXdsConfigs, g)
			}
		}
	}
	return out, nil
}

var clientStatus = map[inspect.NameStatus]adminv3.ClientResourceStatus{
	inspect.StatusRequested:     adminv3.ClientResourceStatus_REQUESTED,
	inspect.StatusDoesNotExist:  adminv3.ClientResourceStatus_DOES_NOT_EXIST,
	inspect.StatusAcked:         adminv3.ClientResourceStatus_ACKED,
	inspect.StatusNacked:        adminv3.ClientResourceStatus_NACKED,
	inspect.StatusReceivedError: adminv3.ClientResourceStatus_RECEIVED_ERROR,
	inspect.StatusUnknown:       adminv3.ClientResourceStatus_UNKNOWN,
}

var configStatus = map[string]statusv3.ConfigStatus{
	inspect.StateSynced: statusv3.ConfigStatus_SYNCED,
	// A restarted relay does not know yet what the origin has.
	inspect.StateUnconfirmed: statusv3.ConfigStatus_UNKNOWN,
	inspect.StateNotSent:     statusv3.ConfigStatus_NOT_SENT,
	inspect.StateStale:       statusv3.ConfigStatus_STALE,
	inspect.StateNacked:      statusv3.ConfigStatus_ERROR,
}

func (c *configs) generic(typ xds.TypeURL, r *inspect.ResourceStatus) *statusv3.ClientConfig_GenericXdsConfig {
	g := &statusv3.ClientConfig_GenericXdsConfig{
		TypeUrl: string(typ), Name: redact.Text(r.Name), VersionInfo: r.Version, LastUpdated: timestamp(r.Updated),
		ClientStatus: clientStatus[r.NameStatus], ConfigStatus: configStatus[r.State],
		XdsConfig: c.resource(r.Has),
	}
	switch {
	case r.Nack != nil:
		g.ErrorState = &adminv3.UpdateFailureState{
			FailedConfiguration: c.resource(r.Nacked), VersionInfo: r.Nack.Version, Details: nackDetails(codes.Code(r.Nack.Code), r.Nack.Message),
			LastUpdateAttempt: timestamp(r.Nack.At),
		}
	case r.Error != nil:
		g.ErrorState = &adminv3.UpdateFailureState{Details: nackDetails(r.Error.Code, errorMessage(r.Error))}
	}
	return g
}

// nackDetails returns the message of a NACK, or the code's name if the message is empty.
func nackDetails(code codes.Code, message string) string {
	if message == "" {
		return code.String()
	}
	return message
}

func errorMessage(e *xds.ResourceError) string {
	m := new(discoveryv3.ResourceError)
	if proto.Unmarshal(e.Wire(), m) != nil { // it was read when it came
		return ""
	}
	return redact.Text(m.GetErrorDetail().GetMessage())
}

func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// resource returns a resource without secrets; nil if contents are excluded.
func (c *configs) resource(r *xds.Resource) *anypb.Any {
	if r == nil || !c.contents {
		return nil
	}
	a, known := c.shown[r]
	if !known {
		a = new(anypb.Any)
		if proto.Unmarshal(r.Any(), a) != nil { // it was read when it came
			a = &anypb.Any{TypeUrl: string(r.TypeURL())}
		}
		a = redact.Any(a)
		c.shown[r] = a
	}
	return a
}
