// Package expr compiles and evaluates the CEL expressions of the
// configuration: which clients are let in (identity), which key they get
// (match and key of a rule), and which node is sent upstream.
//
// Expressions see
//
//   - node, an envoy.config.core.v3.Node; its metadata are maps;
//   - type, the resource type's URL (rules only);
//   - peer, with address, uri_sans, dns_sans and subject (not upstream),
//
// CEL's standard functions, and those of its strings extension (split,
// replace, lowerAscii …). The container is envoy.config.core.v3, so that the
// upstream node is written Node{id: "relay"}.
//
// What an expression gives is checked when it is compiled, except what comes
// out of metadata, whose type only the node decides. An evaluation costs at
// most CostLimit of CEL's units; a client's node must not buy more of the
// relay's time. It is floor 0 and does no I/O.
//
// # Concurrency
//
// Everything returned is immutable and safe for concurrent use.
package expr
