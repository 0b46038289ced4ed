// Package nonce makes the nonces of streams (P10), and recognises them (P13).
//
// # Concurrency
//
// A Sequence is not safe for concurrent use.
package nonce
