// Package tlstest makes certificates for tests: authorities, and what they
// sign. Only tests import it.
//
// # Concurrency
//
// An Authority is safe for concurrent use.
package tlstest
