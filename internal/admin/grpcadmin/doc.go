// Package grpcadmin serves operators over gRPC, for the tools that they have: the status of each
// resource at each client (CSDS), connections (channelz), health, and reflection (v1 and v1alpha).
//
// # CSDS
//
// A ClientConfig is a client: the streams of one node on one connection. Its client_scope is "node
// at address". Its generic_xds_configs are all names that it requested, by type and name.
// client_status is the status of a resource at the client, config_status the relay's state of the
// type:
//
//	REQUESTED       nothing was sent yet, or the first response has no answer
//	ACKED           the client accepted it; version_info and xds_config are what it has
//	NACKED          the client NACKed it with error_state; what it has instead is unknown,
//	                since the relay keeps no old resources for a client
//	DOES_NOT_EXIST  the origin said that there is none; error_state has its reason, if any
//	RECEIVED_ERROR  the origin sent an error instead
//	UNKNOWN         a newer one has no answer, so the client may have either; or it expired
//
// If a client NACKs a response with a full set, all its resources are NACKED: only the client's
// message says which was at fault. version_info is the resource's own version in delta, and in SotW
// the version of the last accepted response. last_updated is when the newest content that the
// client was sent for the type came.
//
// Nodes, resources and messages are shown without secrets (internal/telemetry/redact). Node matchers
// select by the id, and by texts and booleans in the metadata. Another matcher is an error. An answer
// is at most 4 MiB, and is computed in at most ten seconds; beyond that the status RESOURCE_EXHAUSTED
// asks for node_matchers.
//
// # Access
//
// Access is that of internal/admin's HTTP: the same token, as the call's metadata "authorization:
// Bearer …", and the same host names. Health's Check and Watch need no token, like /ready.
//
// # Concurrency
//
// A Server is safe for concurrent use, and keeps no state. One request at a time reads the clients,
// over gRPC or HTTP. New starts nothing. Run returns when all calls have ended, but does not wait for
// connections in their handshake.
package grpcadmin
