// Package aggregator computes the key of a node. Nodes with one key share a subscription at the
// origin, and see the same resources.
//
// Rules are CEL in the configuration (cel.go), or a KeyerConfiguration, the rules file of xds-relay
// (fragments.go, schema.go). A key is a list of elements that cannot collide with another key. A
// node without a matching rule is refused, with the rules that were tried (P5), or gets a key of
// its own. Explain shows each step.
//
// The package does no I/O, except that Compile reads the rules file.
//
// # Concurrency
//
// Rules are safe for concurrent use. Keys are cached in an LRU with its own lock, under which
// nothing is computed. Two callers with the same new node may both compute its key, with the same
// result.
package aggregator
