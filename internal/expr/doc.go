// Package expr compiles and evaluates the CEL expressions of the configuration: which clients a
// listener admits (identity), the key of a node (match and key of a rule), and the node that is
// sent to origins.
//
// Expressions can use
//
//   - node, an envoy.config.core.v3.Node; its metadata are maps;
//   - type, the resource type's URL (rules only);
//   - peer, with address, uri_sans, dns_sans and subject (rules and identity only),
//
// and CEL's standard functions, and those of its strings extension (split, replace, lowerAscii …).
// The container is envoy.config.core.v3, so an expression for the node sent to origins is written
// Node{id: "relay"}.
//
// The type of a result is checked when the expression is compiled, except for metadata, which has a
// type only in a node. CostLimit, MaxOperand and MaxResult bound an evaluation, so that a client's
// node cannot use more of the relay's time and memory. The package does no I/O.
//
// # Concurrency
//
// All returned values are immutable and safe for concurrent use.
package expr
