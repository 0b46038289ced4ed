// Package jsonyaml encodes values as JSON and as YAML, with the same names in the same order. The size
// of the result is bounded for values of any depth.
//
// # Concurrency
//
// The functions are safe for concurrent use.
package jsonyaml
