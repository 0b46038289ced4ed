// Package tokens verifies the JSON Web Tokens by which clients prove themselves. It knows the issuer's
// public keys from a file or a URL, and asks nobody else: a token stays valid until it expires, also
// when its pod is deleted.
//
// # Concurrency
//
// A Verifier is safe for concurrent use. Run reads the keys; Verify reads them too if a token has an
// unknown key, at most once in ten seconds.
package tokens
