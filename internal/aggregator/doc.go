// Package aggregator computes which nodes share a key: all that have one key
// share one subscription at the origin, and see the same resources.
//
// Rules come from the configuration as CEL (cel.go), or from a file of
// xds-relay's, which is called a KeyerConfiguration (fragments.go, schema.go).
// Either way a key is a list of elements that cannot collide with another, and
// a node that maps to nothing is refused with what was tried (P5), or gets a
// key of its own. Explain shows how it came to it.
//
// It is floor 1: it does no I/O but reading the rules' file in Compile.
//
// # Concurrency
//
// Rules are safe for concurrent use. Keys are remembered in an LRU with a lock
// of its own, under which nothing is computed; two callers that meet a new node
// at once both compute, and get equal keys.
package aggregator
