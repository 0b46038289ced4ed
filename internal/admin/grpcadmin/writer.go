package grpcadmin

import (
	"context"
	"errors"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/telemetry/redact"
	"xdsrelay/internal/xds"
)

// Fields of ClientStatusResponse and of ClientConfig.
const (
	responseConfig protowire.Number = 1
	configNode     protowire.Number = 1
	configGeneric  protowire.Number = 3
	configScope    protowire.Number = 4
)

var errLarge = errors.New("too large")

// writer encodes an answer client by client. Messages for a whole large answer would take several
// times its size.
type writer struct {
	ctx      context.Context
	contents bool
	out      *answer
	one      []byte                       // the present client
	part     []byte                       // a message of it
	shown    map[*xds.Resource]*anypb.Any // resources without their secrets
}

func newWriter(ctx context.Context, contents bool) *writer {
	return &writer{ctx: ctx, contents: contents, out: newAnswer(), shown: make(map[*xds.Resource]*anypb.Any)}
}

// client adds a client, which has these streams.
func (w *writer) client(streams []inspect.ClientConfig) error {
	w.one = w.one[:0]
	if node, err := streams[0].Node.Decode(); err == nil { // it was decoded when it came
		if err := w.add(configNode, redact.Message(node)); err != nil {
			return err
		}
	}
	for _, st := range streams {
		for _, typ := range st.Types() {
			for r := range typ.Resources {
				if err := w.add(configGeneric, w.generic(typ.URL, &r)); err != nil {
					return err
				}
			}
		}
	}
	w.one = protowire.AppendTag(w.one, configScope, protowire.BytesType)
	w.one = protowire.AppendString(w.one, redact.Text(streams[0].Node.ID)+" at "+streams[0].Peer)
	if len(w.out.wire)+len(w.one) > maxAnswer {
		return errLarge
	}
	w.out.wire = protowire.AppendTag(w.out.wire, responseConfig, protowire.BytesType)
	w.out.wire = protowire.AppendBytes(w.out.wire, w.one)
	return nil
}

// add adds a message to the present client.
func (w *writer) add(field protowire.Number, m proto.Message) (err error) {
	if w.part, err = (proto.MarshalOptions{}).MarshalAppend(w.part[:0], m); err != nil {
		return err
	}
	w.one = protowire.AppendTag(w.one, field, protowire.BytesType)
	w.one = protowire.AppendBytes(w.one, w.part)
	if len(w.out.wire)+len(w.one) > maxAnswer {
		return errLarge
	}
	return w.ctx.Err()
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
	inspect.StateSynced:  statusv3.ConfigStatus_SYNCED,
	inspect.StateNotSent: statusv3.ConfigStatus_NOT_SENT,
	inspect.StateStale:   statusv3.ConfigStatus_STALE,
	inspect.StateNacked:  statusv3.ConfigStatus_ERROR,
}

func (w *writer) generic(typ xds.TypeURL, r *inspect.ResourceStatus) *statusv3.ClientConfig_GenericXdsConfig {
	g := &statusv3.ClientConfig_GenericXdsConfig{
		TypeUrl: string(typ), Name: redact.Text(r.Name), VersionInfo: r.Version, LastUpdated: timestamp(r.Updated),
		ClientStatus: clientStatus[r.NameStatus], ConfigStatus: configStatus[r.State],
		XdsConfig: w.resource(r.Has),
	}
	switch {
	case r.Nack != nil:
		g.ErrorState = &adminv3.UpdateFailureState{
			FailedConfiguration: w.resource(r.Nacked), VersionInfo: r.Nack.Version, Details: nackDetails(codes.Code(r.Nack.Code), r.Nack.Message),
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

// errorMessage returns the message of an origin's error.
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
func (w *writer) resource(r *xds.Resource) *anypb.Any {
	if r == nil || !w.contents {
		return nil
	}
	a, known := w.shown[r]
	if !known {
		a = new(anypb.Any)
		if proto.Unmarshal(r.Any(), a) != nil { // it was read when it came
			a = &anypb.Any{TypeUrl: string(r.TypeURL())}
		}
		a = redact.Any(a)
		w.shown[r] = a
	}
	return a
}
