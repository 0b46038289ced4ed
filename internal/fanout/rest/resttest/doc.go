// Package resttest polls a REST listener in tests, as Envoy does.
//
// # Concurrency
//
// A Client is safe for concurrent use.
package resttest
