package listener

import (
	"errors"
	"strings"

	"google.golang.org/grpc/codes"

	"xdsrelay/config"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// Scan parses a request, and refuses it if it exceeds the limits or is invalid. known are lists of
// names that the request may begin with: see xds.Request.
func Scan(r *xds.Request, v xds.Variant, msg []byte, limits *config.Limits, known ...xds.NameList) *refusal.Refusal {
	refused := scan(r, v, msg, limits.NamesPerStream, known)
	if refused != nil {
		refused.Node = nodeOf(r.Node)
	}
	return refused
}

func scan(r *xds.Request, v xds.Variant, msg []byte, maxNames int, known []xds.NameList) *refusal.Refusal {
	switch err := r.Scan(v, msg, maxNames, known...); {
	case errors.Is(err, xds.ErrTooManyNames):
		return refusal.New(codes.ResourceExhausted, telemetry.LimitNamesPerStream, "request: %w (a long name counts several times) than downstream.limits.names_per_stream allows (%d)", err, maxNames)
	case errors.Is(err, xds.ErrLongRequestName), errors.Is(err, xds.ErrLongType):
		return refusal.New(codes.InvalidArgument, telemetry.NameBytes, "request: %w", err)
	case err != nil:
		return refusal.New(codes.InvalidArgument, telemetry.RequestInvalid, "request: %w", err)
	case r.Locators:
		return refusal.New(codes.Unimplemented, telemetry.ResourceLocators, "request: resource_locators are not supported")
	}
	return nil
}

// CheckNode refuses a node that is larger than limits.node_bytes.
func CheckNode(raw []byte, limits *config.Limits) *refusal.Refusal {
	if limits.NodeBytes <= 0 || len(raw) <= limits.NodeBytes {
		return nil
	}
	r := refusal.New(codes.ResourceExhausted, telemetry.LimitNodeBytes, "node: %d bytes, more than downstream.limits.node_bytes allows (%d)", len(raw), limits.NodeBytes)
	r.Node = nodeOf(raw)
	return r
}

// nodeOf returns the id in an encoded node, for the log line of a first request that is
// refused before anything else is read of it.
func nodeOf(node []byte) string {
	return strings.Clone(refusal.Short(xds.NodeIDOf(node), refusal.MaxNode))
}
