// Package tlstest makes authorities and certificates for tests. Only tests import it.
//
// # Concurrency
//
// An Authority is safe for concurrent use.
package tlstest
