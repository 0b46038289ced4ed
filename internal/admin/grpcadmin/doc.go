// Package grpcadmin is what operators reach over gRPC, with the tools that they
// have: how each client stands to each resource (CSDS), what connections there are
// (channelz), whether the relay serves (health), and what there is to ask
// (reflection, v1 and v1alpha).
//
// # CSDS
//
// A ClientConfig is a client: the streams of one node on one connection, whose
// client_scope is "node at address". Its generic_xds_configs are all names that it
// asked for, by type and name. client_status is what the client told, config_status
// what the relay knows:
//
//	REQUESTED       nothing was sent of it yet, or the first response is unanswered
//	ACKED           it took it: version_info and xds_config are what it has
//	NACKED          it refused what error_state has; what it has instead is not known,
//	                since no old resources are kept for a client
//	DOES_NOT_EXIST  the origin has none, and said so; error_state has its words, if any
//	RECEIVED_ERROR  the origin has an error in its place
//	UNKNOWN         a newer one is unanswered, so that it may have either, or what it
//	                had has expired
//
// Of a refused response that held a full set, all resources are NACKED: which was at
// fault is in the words of the client alone. version_info is the resource's own in
// incremental, and in state of the world that of the response which was taken last.
// last_updated is when the newest came of what the client was sent of the type.
//
// Nodes, resources and words are shown without their secrets (internal/telemetry/redact).
// All node matchers of Envoy's protos are known but custom ones; what is not known is
// refused, and not passed over. An answer is at most 16 MiB, and made in ten
// seconds; of more a RESOURCE_EXHAUSTED tells to use node_matchers.
//
// # Who may
//
// Who may reach internal/admin's HTTP, by the same token, as the call's metadata
// "authorization: Bearer …", and under the same names. Health's Check and Watch need
// none, as /ready needs none.
//
// # Concurrency
//
// A Server is safe for concurrent use, and keeps no state. One request at a time reads the
// clients, over gRPC or HTTP. Two answers at most are held until they are taken or their
// connection is closed. New starts nothing; Run returns when all calls have ended, but
// does not wait for connections in their handshake.
package grpcadmin
