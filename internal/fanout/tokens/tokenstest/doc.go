// Package tokenstest has an issuer of JSON Web Tokens for tests.
//
// # Concurrency
//
// An Issuer is for the goroutine of its test, except Open.
package tokenstest
